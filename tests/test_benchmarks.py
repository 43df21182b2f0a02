"""Smoke tests: the benchmarks run on tiny settings, and write their result into a page. Speed is not judged here."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TINY = ("--data", "digits", "--split", "iid", "--clients", "4", "--cohort", "0.5", "--epochs", "1", "--rounds", "2")


@pytest.fixture
def bench(monkeypatch):
    """Run one of the scripts in this process, as `python benchmarks/name.py ...` does."""

    def call(name: str, *arguments: str) -> None:
        script = ROOT / "benchmarks" / f"{name}.py"
        monkeypatch.syspath_prepend(str(script.parent))
        monkeypatch.setattr(sys, "argv", [str(script), *TINY, *arguments])
        runpy.run_path(str(script), run_name="__main__")

    yield call
    for name in ("common", "overhead"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["overhead", "workers", "native"])
def test_runs_and_writes(name, bench, tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n<!-- {name}: begin -->\nold\n<!-- {name}: end -->\n\nrest\n")
    only = ["--cases", "MLP 64-64-10", "--repeats", "2"] if name == "native" else []
    bench(name, *only, "--json", "--write", str(page))
    result = json.loads(capsys.readouterr().out)
    assert (result["round"] if name == "native" else result)["ratio"] > 0
    assert result["asked"]["rounds"] == 2
    assert result["busy"]["cores"] >= 1
    text = page.read_text()
    assert text.startswith("# Title\n")
    assert text.endswith("rest\n")
    assert "old" not in text
    assert result["date"] in text
    if name == "overhead":
        assert result["difference"] <= 1e-5
        assert result["steps_per_round"] > 0


def test_scale(bench, tmp_path, capsys):
    """Clustering in processes of their own, the federation's size, and the memory of a run with workers."""
    page = tmp_path / "page.md"
    page.write_text("# Title\n<!-- scale: begin -->\nold\n<!-- scale: end -->\n")
    sizes = ("--sizes", "10", "20", "--dimensions", "20", "--vectors", "3", "--small", "10", "--workers", "1")
    bench("scale", *sizes, "--distances", "overlap", "--json", "--write", str(page))
    result = json.loads(capsys.readouterr().out)
    assert [row["clients"] for row in result["clustering"]] == [10, 20]
    assert all(row["gib"] >= row["gib_before"] > 0 for row in result["clustering"])
    assert result["federation"]["ratio"] > 0
    assert result["memory"]["pss_gib"] == pytest.approx(sum(result["memory"]["pss_by_process"]))
    assert len(result["memory"]["pss_by_process"]) == 2
    assert "old" not in page.read_text()


def test_page_without_markers(bench, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing\n")
    with pytest.raises(SystemExit, match="overhead: begin"):
        bench("overhead", "--write", str(page))
    assert page.read_text() == "nothing\n"


def test_the_projects_page_has_the_markers():
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    for name in ("overhead", "workers", "native", "scale"):
        assert text.count(f"<!-- {name}: begin -->") == text.count(f"<!-- {name}: end -->") == 1
