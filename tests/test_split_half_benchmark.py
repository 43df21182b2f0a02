"""Smoke tests: the table of docs/split-half.md is made from a few digits, and written into a page."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
MARKED = "# Title\n\n<!-- {name}: begin -->\nold\n<!-- {name}: end -->\n\nrest\n"


@pytest.fixture
def script(monkeypatch):
    """The script's names, as `python benchmarks/split_half.py` has them."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield runpy.run_path(str(ROOT / "benchmarks" / "split_half.py"))
    for module in ("common", "federations"):
        sys.modules.pop(module, None)


@pytest.fixture
def bench(script, monkeypatch):
    """Run the script with these arguments."""

    def call(*arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", ["split_half.py", *arguments])
        script["main"]()

    return call


def test_the_table_is_made_and_written(bench, tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(MARKED.format(name="split-half"))
    bench("--quick", "--seeds", "0", "--families", "^digits, 40x36, (iid|rotate:4)$", "--json", "--write", str(page))
    result = json.loads(capsys.readouterr().out)
    assert [family["right"]["default"] for family in result["families"]] == [1, 1]
    assert result["summary"][-1]["tried"] == 2
    text = page.read_text()
    assert text.startswith("# Title\n")
    assert text.endswith("rest\n")
    assert "old" not in text
    assert "| **all** |  | 2 | 2 |" in text
    assert "--families '^digits, 40x36, (iid|rotate:4)$'" in text, "the command can be copied into a shell"


def test_a_data_set_that_is_absent_is_left_out_with_a_line(bench, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("ILK_DATA", str(tmp_path))
    monkeypatch.setenv("ILK_CACHE", str(tmp_path / "cache"))
    bench("--quick", "--families", "^cifar10, 20x300, iid|^digits, 8x36")
    shown = capsys.readouterr()
    assert "cifar10 left out: " in shown.out
    assert "digits, 8x36, rotate:4 | 1 |" in shown.out


def test_label_skew(bench, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(MARKED.format(name="label-skew"))
    bench("--label-skew", "--quick", "--write", str(page))
    assert "| PACFL, clusters=4 | 4 |" in page.read_text()


def test_families_that_do_not_exist(bench):
    with pytest.raises(SystemExit, match="fits no family"):
        bench("--families", "nothing like it")


def test_clients_sign_with_the_samples_that_the_family_says(script):
    family = next(cell.family for cell in script["plan"]() if cell.family.name == "digits, 40x36, rotate:4")
    federation = script["make"](family, 0)
    assert {len(federation.read(k, "train+validation")[1]) for k in range(40)} == {36}
    assert np.bincount(federation.groups).tolist() == [10, 10, 10, 10]


def test_the_projects_page_has_the_markers():
    text = (ROOT / "docs" / "split-half.md").read_text()
    for name in ("split-half", "label-skew"):
        assert text.count(f"<!-- {name}: begin -->") == text.count(f"<!-- {name}: end -->") == 1
