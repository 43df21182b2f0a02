"""The page as text: every name shown as text, no way out of it, a strict policy, a small file."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from ilk.errors import IlkError
from ilk.report.markup import fill, script_json, sortable
from ilk.report.names import LONGEST, clean, distinct
from ilk.report.page import page, write_report
from ilk.report.reading import read_all

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "\"'`&amp;{{title}}",
    "x" * 5000,
    "日本語 עברית 🙂",
    "\u202egnp.exe\u2028\x00",
    "<!--<script>",
    "datum.a]['b'\\",
]


class Elements(HTMLParser):
    """Collects elements, and the text outside of scripts."""

    def __init__(self):
        super().__init__()
        self.tags, self.text, self.scripts = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        inside = self.tags and self.tags[-1][0] == "script" and data.strip()
        if inside:
            self.scripts[-1] += data
        else:
            self.text.append(data)


@pytest.fixture(scope="module")
def hostile_runs(plant, in_blocks, tmp_path_factory):
    below = tmp_path_factory.mktemp("hostile")
    clients = len(HOSTILE)
    cluster = [k % 2 for k in range(clients)]
    config = {"data": "</title><b>" + HOSTILE[0], "split": HOSTILE[1], "test_policy": HOSTILE[2]}
    return [
        plant(below / "p", "<i>pacfl", [0.8] * clients, cluster, HOSTILE, distance=in_blocks(cluster), config=config),
        plant(below / "s", "solo", [0.9] * clients, ids=HOSTILE, config=config, options={}),
    ]


def test_names_are_text(hostile_runs):
    read = Elements()
    read.feed(page(*read_all(hostile_runs)))
    assert not [attrs for tag, attrs in read.tags if any(name.startswith("on") for name in attrs)]
    assert {tag for tag, _ in read.tags}.isdisjoint({"img", "i", "b", "iframe", "object"})
    shown = "".join(read.text)
    for name in HOSTILE:
        assert clean(name) in shown
    assert "<i>pacfl" in shown
    executed = [attrs for tag, attrs in read.tags if tag == "script" and "type" not in attrs]
    assert len(executed) == 2


def test_specifications_hold_names_as_they_are(hostile_runs):
    text = page(*read_all(hostile_runs))
    specs = re.findall(r'<script type="application/json" id="spec-\d+">(.*?)</script>', text, re.DOTALL)
    assert len(specs) > 5
    assert all("<" not in spec and json.loads(spec) for spec in specs)
    assert any(clean(HOSTILE[1]) in json.dumps(json.loads(spec), ensure_ascii=False) for spec in specs)


def test_only_its_own_two_scripts_may_run(plant, tmp_path):
    text = page(*read_all([plant(tmp_path / "r")]))
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert "http" not in policy
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    for script in scripts:
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy
    assert len(scripts) == 2


def test_nothing_is_fetched_and_it_is_small(compare, tmp_path):
    path = write_report(compare(tmp_path / "e"), tmp_path / "r.html")
    assert path.stat().st_size < 5e6
    own = re.sub(r"<script.*?</script>", "", path.read_text(), flags=re.DOTALL)
    assert not re.search(r"(src|href)=\"(?!#|data:)", own)


def test_the_order_in_which_a_reader_asks(compare, tmp_path):
    text = page(*read_all(compare(tmp_path / "e")))
    titles = re.findall(r'<h2 id="\w+">(.*?)</h2>', text)
    assert titles == [
        *("The answer", "Who gains", "Who is with whom", "How it learned", "What it cost", "What threshold"),
        "How to get this again",
    ]
    assert "ilk run pacfl" in text


def test_a_folder_is_not_a_file(plant, tmp_path):
    with pytest.raises(IlkError, match="is a folder"):
        write_report([plant(tmp_path / "r")], tmp_path)


def test_names_are_cleaned():
    assert clean("a\u202eb\x00") == "a\ufffdb\ufffd"
    assert len(clean("x" * 5000)) == LONGEST
    assert distinct(["a", "a", "x" * 5000, "x" * 5001])[1] == "a (2)"
    assert clean("\ud800") == "?"


def test_markup():
    assert fill("{{a}}{{b}}", {"a": "{{b}}", "b": "1"}) == "{{b}}1"
    assert json.loads(script_json({"a": "</script>\u2028&"})) == {"a": "</script>\u2028&"}
    with pytest.raises(ValueError, match="not JSON compliant"):
        script_json(float("nan"))
    table = sortable(
        "t", ["<a>"], [[("x", "")[:1][0], (None, ".1f"), (float("nan"), ".1f"), (-1.25, "+.1f")]], losses=True
    )
    assert "&lt;a&gt;" in table
    assert table.count('data-value=""') == 2
    assert '<td class="loss" data-value="-1.25">-1.2</td>' in table


def test_what_is_no_number_is_left_out(plant, in_blocks, tmp_path):
    folder = plant(
        tmp_path / "r",
        accuracy=[0.5, float("nan"), 0.7],
        cluster=[0, 0, 1],
        distance=in_blocks([0, 0, 1]),
        reported=lambda round: {"temperature": float("nan") if round == 2 else 0.5},
    )
    nobody = '"accuracy": NaN, "accuracy_worst": NaN, "clusters": 2, "accuracy_by_client": [NaN, NaN, NaN]'
    rest = '"cluster_by_client": [0, 0, 1], "bytes_up": 9, "bytes_down": 9, "seconds": 1'
    with (folder / "history.jsonl").open("a") as file:
        file.write(f'{{"round": 4, {nobody}, {rest}}}\n')
    assert "reaches 60.0 % on average" in page(*read_all([folder]))  # its JSON would refuse NaN
