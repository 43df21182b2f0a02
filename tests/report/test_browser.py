"""The page in a real browser, with the network off: nothing is asked for, nothing fails, every chart is drawn."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, field

import pytest

from ilk.report.page import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND"),
]
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "\"'`{{title}}",
    "x" * 3000,
    "日本語 עברית",
]


@pytest.fixture(scope="module")
def browser():
    if not CHROMIUM and not os.environ.get("CI"):
        pytest.skip("There is no Chromium here; `make test` installs it where it may (apt-get install chromium).")
    assert CHROMIUM, "CI must have Chromium: see .ci/run"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield opened
        opened.close()


@dataclass
class Opened:
    """A page that was opened, and what it did meanwhile."""

    page: object
    seconds: float
    requests: list = field(default_factory=list)
    said: list = field(default_factory=list)

    @property
    def figures(self):
        return self.page.locator("figure[data-spec]")


@pytest.fixture
def show(browser):
    """Open a file without a network; wait until its charts are drawn."""
    contexts = []

    def open_(path, width=1000, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
        contexts.append(context)
        page = context.new_page()
        opened = Opened(page, 0.0)
        page.on("request", lambda request: opened.requests.append(request.url))
        page.on("console", lambda message: opened.said.append(message.text))
        page.on("pageerror", lambda error: opened.said.append(str(error)))
        page.on("dialog", lambda dialog: (opened.said.append("dialog"), dialog.dismiss()))
        began = time.monotonic()
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-drawn]", state="attached")
        opened.seconds = time.monotonic() - began
        return opened

    yield open_
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def report(compare, tmp_path_factory):
    """Three methods, forty clients, two seeds."""
    below = tmp_path_factory.mktemp("report")
    return write_report(compare(below / "e", seeds=(0, 1)), below / "report.html")


def check(opened, path):
    """What holds of every page: one request, the file itself; no word on the console; every chart drawn."""
    assert opened.requests == [path.as_uri()]
    assert opened.said == []
    count = opened.figures.count()
    assert count > 5
    assert opened.page.locator("html").get_attribute("data-drawn") == str(count)
    for k in range(count):
        figure = opened.figures.nth(k)
        marks = figure.locator("svg [class*=mark-]:not([class*=role-axis]):not([class*=role-legend]) *")
        assert marks.count() > 0, figure.inner_text()


@pytest.mark.parametrize("width", [400, 1000, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_at_every_width_in_light_and_dark(show, report, width, scheme):
    opened = show(report, width, scheme)
    check(opened, report)
    box = opened.page.locator("html").evaluate("page => [page.scrollWidth, page.clientWidth]")
    assert box[0] <= box[1], "the page itself never scrolls sideways"
    for k in range(opened.figures.count()):
        svg = opened.figures.nth(k).locator(".chart svg.marks").bounding_box()
        assert svg["x"] >= 0
        assert svg["x"] + svg["width"] <= width
        assert svg["width"] >= 0.6 * min(width, 400)
    paper, ink, soft = opened.page.locator(".answer p").first.evaluate(
        """words => [getComputedStyle(document.body).backgroundColor, getComputedStyle(words).color,
                     getComputedStyle(document.querySelector("figcaption")).color]"""
    )
    assert contrast(paper, ink) > 12
    assert contrast(paper, soft) > 4.5
    label = opened.figures.first.locator("svg .role-axis-label text").first
    assert contrast(paper, label.evaluate("text => getComputedStyle(text).fill")) > 4.5
    assert (luminance(paper) > 0.5) == (scheme == "light")


def luminance(colour):
    channels = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_sorting_with_the_keyboard(show, report):
    page = show(report).page
    table = page.locator("section[aria-labelledby=gains] table")
    header = table.locator("th", has_text="pacfl gain")

    def column():
        cells = table.locator("tbody tr td:nth-child(6)")
        return [float(cell.get_attribute("data-value")) for cell in cells.all()]

    header.locator("button").focus()
    page.keyboard.press("Enter")
    assert header.get_attribute("aria-sort") == "descending"
    assert column() == sorted(column(), reverse=True)
    page.keyboard.press("Space")
    assert header.get_attribute("aria-sort") == "ascending"
    assert column() == sorted(column())
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    assert header.get_attribute("aria-sort") is None
    assert table.locator("th[aria-sort]").count() == 1
    names = table.locator("th", has_text="client")
    names.locator("button").press("Enter")
    assert names.get_attribute("aria-sort") == "ascending"
    assert table.locator("tbody tr td:first-child").first.inner_text() == "c00"


def test_every_button_and_box_is_reached_by_tab(show, report):
    page = show(report).page
    page.keyboard.press("Tab")
    assert page.evaluate_handle("document.activeElement").as_element().inner_text() == "To the answer"
    seen, wanted = set(), {"A.", "BUTTON.", "DIV.scroll"}
    for _ in range(120):
        page.keyboard.press("Tab")
        focused = page.locator(":focus")
        seen.add(focused.evaluate("one => one.tagName + '.' + one.className") if focused.count() else "")
        if wanted <= seen:
            return
    raise AssertionError(seen)


def test_charts_follow_the_width(show, report):
    opened = show(report, 1600)
    svg = opened.figures.last.locator(".chart svg.marks")
    wide = svg.bounding_box()["width"]
    opened.page.set_viewport_size({"width": 500, "height": 900})
    deadline = time.monotonic() + 10
    while svg.get_attribute("width") is None or float(svg.get_attribute("width")) > 480:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert svg.bounding_box()["width"] < wide
    assert opened.said == []


def test_pointing_at_a_dot_names_the_client(show, report):
    opened = show(report)
    dot = opened.figures.first.locator("svg .mark-symbol.role-mark path").first
    dot.hover(force=True)
    tip = opened.page.locator("#vg-tooltip-element")
    tip.wait_for(state="visible")
    assert "client" in tip.inner_text()
    assert opened.said == []


def test_on_paper(show, report, tmp_path):
    opened = show(report, scheme="dark")
    opened.page.pdf(path=tmp_path / "r.pdf", format="A4")
    assert (tmp_path / "r.pdf").read_bytes().startswith(b"%PDF")
    opened.page.emulate_media(media="print", color_scheme="dark")
    colours = opened.page.locator("body").evaluate(
        "body => [getComputedStyle(body).backgroundColor, getComputedStyle(body).color]"
    )
    assert colours == ["rgb(255, 255, 255)", "rgb(0, 0, 0)"]
    assert opened.page.locator(".scroll").first.evaluate("box => getComputedStyle(box).overflowX") == "visible"
    assert not opened.page.locator("nav").is_visible()
    check(opened, report)


def test_hostile_names(show, plant, in_blocks, tmp_path):
    clients, cluster = len(HOSTILE), [0, 1, 0, 1, 0]
    config = {"data": "<b>" + HOSTILE[0], "split": HOSTILE[1]}
    runs = [
        plant(
            tmp_path / "p",
            HOSTILE[1],
            [0.6, 0.7, 0.8, 0.9, 0.5],
            cluster,
            HOSTILE,
            distance=in_blocks(cluster),
            config=config,
        ),
        plant(tmp_path / "s", "solo", [0.7] * clients, ids=HOSTILE, config=config, options={}),
    ]
    path = write_report(runs, tmp_path / "r.html")
    for width in (400, 1600):
        opened = show(path, width)
        check(opened, path)
        assert opened.page.locator("img, b").count() == 0
        assert opened.page.locator("table td", has_text=HOSTILE[0]).count() > 0
        assert opened.page.locator("svg text", has_text="日本語").count() > 0
        assert opened.page.locator("html").evaluate("page => page.scrollWidth <= page.clientWidth")


def test_a_thousand_clients_open_in_three_seconds_and_say_what_was_left_out(show, compare, tmp_path):
    path = write_report(compare(tmp_path / "e", clients=1000, groups=12), tmp_path / "r.html")
    assert path.stat().st_size < 5e6
    tries = []
    while not tries or (min(tries) > 3 and len(tries) < 4):  # other work on the machine is not the page's doing
        opened = show(path)
        tries.append(opened.seconds)
    check(opened, path)
    assert min(tries) < 3, tries
    said = opened.page.locator("main").inner_text()
    for words in (
        "Each cell is a mean over about 20 clients",
        "200 highest merges",
        "a random choice of 600",
        "sums of each cluster",
    ):
        assert words in said
    assert opened.page.locator("section[aria-labelledby=gains] tbody tr").count() == 1000


def test_what_is_missing_is_said(show, plant, tmp_path):
    folder = plant(tmp_path / "r", accuracy=[0.5] * 4, cluster=[0, 0, 1, 1])
    (folder / "result.json").unlink()
    (folder / "checkpoint.safetensors").write_bytes(b"garbage")
    path = write_report([folder], tmp_path / "r.html")
    opened = show(path)
    assert opened.said == []
    said = opened.page.locator(".missing").inner_text()
    assert "unfinished: 3 of 3 rounds" in said
    assert "checkpoint.safetensors cannot be read" in said
    assert "keeps no matrix of distances" in opened.page.locator("main").inner_text()
