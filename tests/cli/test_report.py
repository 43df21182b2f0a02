"""`ilk report`, `ilk figures`, and the report at the end of a comparison."""

from __future__ import annotations

from pathlib import Path

import pytest


def test_a_comparison_ends_with_its_report(fast):
    ended = fast("compare", "solo", "fedavg", "--out", "r")
    assert ended.code == 0
    assert "report     r/report.html" in ended.out
    assert "fedavg" in Path("r/report.html").read_text()


def test_programs_get_their_json_and_people_the_path(fast):
    ended = fast("compare", "solo", "fedavg", "--out", "r", "--json")
    assert list(ended.json) == ["runs"]
    assert "r/report.html" in ended.err


def test_a_single_run_has_none_of_itself(fast):
    fast("run", "solo", "--out", "r")
    assert not Path("r/report.html").exists()


def test_a_report_that_fails_does_not_take_the_results_along(fast, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("no paper")

    monkeypatch.setattr("ilk.report.page.write_report", fail)
    ended = fast("compare", "solo", "fedavg", "--out", "r")
    assert ended.code == 0
    assert (
        "The report could not be written (RuntimeError: no paper). The runs are whole; try: ilk report r" in ended.err
    )
    assert "accuracy" in ended.out


def test_it_is_written_anew_on_resume(fast, ilk):
    fast("compare", "solo", "fedavg", "--out", "r")
    Path("r/report.html").unlink()
    assert ilk("compare", "--resume", "r", "--engine", "inline").code == 0
    assert Path("r/report.html").exists()


def test_report(fast, ilk):
    fast("run", "solo", "--out", "a")
    fast("run", "pacfl", "--out", "b")
    ended = ilk("report", "a", "b", "-o", "below/p.html", "--json")
    assert ended.json == {"report": "below/p.html"}
    text = Path("below/p.html").read_text()
    assert "better than alone" in text
    assert "ilk" in text
    assert ilk("report", "a").out == "The report: report.html\n"


def test_report_of_nothing(ilk):
    Path("empty").mkdir()
    assert ilk("report", "empty").code == 0
    assert "holds no run" in Path("report.html").read_text()
    missing = ilk("report", "nowhere")
    assert missing.code == 2
    assert "There is no folder nowhere" in missing.err


def test_open(fast, ilk, monkeypatch):
    fast("run", "solo", "--out", "a")
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    assert ilk("report", "a", "--open").code == 0
    assert opened == [Path("report.html").resolve().as_uri()]
    monkeypatch.setattr("webbrowser.open", lambda url: False)
    assert "no browser" in ilk("report", "a", "--open").err


@pytest.mark.parametrize("form", ["pdf", "SVG"])
def test_figures(fast, ilk, form):
    fast("run", "pacfl", "--out", "a")
    ended = ilk("figures", "a", "--out", "f", "--format", form, "--json")
    assert all(Path(path).exists() and path.endswith(form.lower()) for path in ended.json["figures"])
    assert "f/matrix-pacfl." + form.lower() in ended.json["figures"]


def test_a_format_that_there_is_not(ilk):
    ended = ilk("figures", "a", "--format", "doc")
    assert ended.code == 2
    assert "Allowed: pdf, svg, png" in ended.err
