"""The charts are valid, draw, and as files fit a paper's column, also in grey and for the colour-blind."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest

from ilk.errors import IlkError
from ilk.report.charts.cost import SHADES
from ilk.report.charts.look import COLOURS, COLUMN, DASHES, SCREEN, SHAPES, WIDE
from ilk.report.figure import Figure
from ilk.report.figures import rendered, write_figures
from ilk.report.numbers import summaries
from ilk.report.reading import read_all
from ilk.report.sections import sections


@pytest.fixture(scope="module")
def figures(plant, compare, tmp_path_factory):
    """Every kind of chart that there is."""
    below = tmp_path_factory.mktemp("all")
    cluster = [k % 4 for k in range(40)]
    folders = compare(below / "e")
    warm = {"reported": lambda round: {"temperature": 0.5 - 0.1 * (round % 2)}, "plain": {"clustered_at": 2}}
    folders.append(plant(below / "o", "ocfl", [0.5] * 40, cluster, options={}, **warm))
    norms = {"reported": lambda round: {"norms": [[0.1, round / 3], None]}, "options": {"eps1": 0.4, "eps2": 1.6}}
    moving = plant(below / "c", "cfl", [0.6] * 40, cluster, **norms)
    rows = (
        (moving / "history.jsonl")
        .read_text()
        .replace(f'"cluster_by_client": {cluster}', f'"cluster_by_client": {[0] * 40}', 1)
    )
    (moving / "history.jsonl").write_text(rows)
    for threshold in (0.1, 0.5):
        options = {"threshold": threshold, "linkage": "upgma"}
        folders.append(plant(below / f"t{threshold}", "flis-hc", [0.3 + threshold] * 40, cluster, options=options))
    readings, missing = read_all([*folders, moving])
    assert missing == []
    return {figure.key: figure for figure in sections(readings, summaries(readings)).figures}


def test_every_kind_is_there(figures):
    kinds = {key.split("-")[0] for key in figures}
    assert kinds == {
        *("gains", "matrix", "map", "labels", "temperature", "norms", "flow", "learning", "bytes", "seconds"),
        *("threshold", "accuracy"),
    }


def test_every_chart_is_valid(figures):
    for figure in figures.values():
        checked = figure.draw(SCREEN).to_dict()  # Altair's own checks are on here
        assert checked.keys() == figure.specification(SCREEN).keys()


@pytest.mark.parametrize(("look", "width"), [(COLUMN, 252), (WIDE, 516)])
def test_width_on_paper(figures, look, width):
    for key, figure in list(figures.items())[:: 1 if look is COLUMN else 5]:
        pdf = rendered(figure.specification(look), "pdf")
        box = re.search(rb"/MediaBox\s*\[\s*0 0 ([\d.]+) ([\d.]+)", pdf)
        assert float(box[1]) <= width + 8, key
        assert float(box[1]) >= width * 0.75, key


@pytest.mark.parametrize(("form", "begins"), [("pdf", b"%PDF"), ("svg", b"<svg"), ("png", b"\x89PNG")])
def test_files(compare, tmp_path, form, begins):
    files, missing = write_figures(compare(tmp_path / "e", clients=8), tmp_path / "f", form, wide=False)
    assert missing == []
    assert {"gains-pacfl", "matrix-pacfl", "learning-rounds", "bytes"} <= {file.stem for file in files}
    assert all(file.read_bytes().startswith(begins) for file in files)


def test_hostile_names_of_methods_make_file_names_of_their_own(plant, tmp_path):
    folders = [
        plant(tmp_path / str(k), name, [0.5, 0.6], [0, 0]) for k, name in enumerate(["../../a", "../../b", "//"])
    ]
    solo = plant(tmp_path / "s", "solo", [0.5, 0.6], options={})
    files, _ = write_figures([*folders, solo], tmp_path / "f", "svg", wide=False)
    assert all(file.parent == tmp_path / "f" for file in files)
    assert len({file.name.lower() for file in files}) == len(files)


def test_nothing_to_draw(plant, tmp_path):
    folder = plant(tmp_path / "r", history=[], megabytes=0)
    (folder / "result.json").unlink()
    with pytest.raises(IlkError, match=r"nothing to draw.*unfinished"):
        write_figures([folder], tmp_path / "f", "pdf", wide=False)


def luminance(colour):
    channels = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def deuteranope(colour):
    """The colour as somebody without green cones sees it (Machado et al., 2009)."""
    rgb = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    matrix = np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]])
    return np.clip(matrix @ rgb, 0, 1)


def test_bars_differ_in_grey():
    for one, other in combinations(SHADES, 2):
        assert abs(luminance(one) ** 0.5 - luminance(other) ** 0.5) > 0.07, (one, other)


def test_the_first_colours_differ_for_the_colour_blind():
    for one, other in combinations(COLOURS[:6], 2):
        assert np.linalg.norm(deuteranope(one) - deuteranope(other)) > 0.15, (one, other)


def test_nothing_is_told_by_colour_alone():
    assert len({str(dash) for dash in DASHES}) == len(set(SHAPES)) == len(COLOURS)


def test_a_figure_is_what_the_page_shows(figures):
    assert all(isinstance(figure, Figure) and figure.title and figure.caption for figure in figures.values())
