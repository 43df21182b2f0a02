"""Smoke tests of `ilk bench`: it runs on tiny settings, and writes its results into a page. Speed is not judged here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ilk.bench import PARTS, main
from ilk.bench.chart import growth, ratios
from ilk.bench.common import federation_of
from ilk.errors import IlkError

ROOT = Path(__file__).parent.parent
TINY = ("--data", "digits", "--split", "iid", "--clients", "4", "--cohort", "0.5", "--epochs", "1", "--rounds", "2")


@pytest.fixture
def bench(capsys):
    """Measure one part and return what it found."""

    def call(part: str, *arguments: str) -> dict:
        main([part, *TINY, "--json", *arguments])
        return json.loads(capsys.readouterr().out)

    return call


@pytest.mark.parametrize("name", ["overhead", "workers", "native"])
def test_runs_and_writes(name, bench, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n<!-- {name}: begin -->\nold\n<!-- {name}: end -->\n\nrest\n")
    only = ["--cases", "MLP 64-64-10", "--repeats", "2"] if name == "native" else []
    result = bench(name, *only, "--write", str(page))
    assert (result["round"] if name == "native" else result)["ratio"] > 0
    assert result["busy"]["cores"] >= 1
    text = page.read_text()
    assert text.startswith("# Title\n")
    assert text.endswith("rest\n")
    assert "old" not in text
    assert result["date"] in text
    if name == "overhead":
        assert result["difference"] <= 1e-5
        assert result["steps_per_round"] > 0


def test_scale(bench, tmp_path):
    """Clustering in processes of their own, the federation's size, and the memory of a run with workers."""
    sizes = ("--sizes", "10", "20", "--dimensions", "20", "--vectors", "3", "--small", "10", "--workers", "1")
    result = bench("scale", *sizes, "--distances", "overlap")
    assert [row["clients"] for row in result["clustering"]] == [10, 20]
    assert all(row["gib"] >= row["gib_before"] > 0 for row in result["clustering"])
    assert result["federation"]["ratio"] > 0
    assert result["memory"]["pss_gib"] == pytest.approx(sum(result["memory"]["pss_by_process"]))
    assert len(result["memory"]["pss_by_process"]) == 2
    assert [(row["clients"], row["distance"]) for row in growth({"scale": result})] == [
        (10, "overlap"),
        (20, "overlap"),
    ]


def test_all_parts_one_after_the_other(monkeypatch, capsys):
    """One that cannot be measured here says why, and the others go on."""
    import ilk.bench.scale
    import ilk.bench.workers

    for part in PARTS:
        module = __import__(f"ilk.bench.{part}", fromlist=[part])
        monkeypatch.setattr(module, "measure", lambda given: {"rounds": given.rounds, "text": "measured"})

    def cannot(given):
        raise IlkError("it is not installed")

    monkeypatch.setattr(ilk.bench.workers, "measure", cannot)
    main(["--quick"])
    out = capsys.readouterr().out
    assert out.count("measured") == len(PARTS)
    assert "not measured: it is not installed" in out
    main(["--quick", "--json"])
    found = json.loads(capsys.readouterr().out)["parts"]
    assert found["native"]["rounds"] == 1
    assert found["workers"] == {"missing": "it is not installed"}


def test_without_the_files_of_a_data_set_images_are_made(monkeypatch, tmp_path):
    from argparse import Namespace

    monkeypatch.delenv("ILK_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    made = federation_of(Namespace(data="fashion-mnist", split="label-skew:0.2", clients=10, seed=0))
    assert (len(made.ids), made.shape, made.classes) == (10, (1, 28, 28), 10)
    assert ((made.sizes > 590) & (made.sizes < 610)).all()


def test_a_bar_for_each_ratio():
    found = {
        "native": {"cases": [{"title": "MLP", "ratios": {"avx2": 5.0}}], "round": {"workers": 2, "ratio": 9.0}},
        "flower": {"ratios": {"flower-sim": 2.0}},
    }
    assert [row["ratio"] for row in ratios(found)] == [5, 9, 2]


def test_page_without_markers(bench, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing\n")
    with pytest.raises(IlkError, match="workers: begin"):
        bench("workers", "--write", str(page))
    assert page.read_text() == "nothing\n"


def test_the_projects_page_has_the_markers():
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    for name in PARTS:
        assert text.count(f"<!-- {name}: begin -->") == text.count(f"<!-- {name}: end -->") == 1
