"""How to get this again: the commands, what they ran on, and what every number on the page means."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ilk.report.names import clean
from ilk.report.reading import Reading
from ilk.runs.folder import PARTITION

DEFINITIONS = {
    "accuracy": "Share of a client's test samples that are classified rightly; which model and which samples, the protocol "
    "and the test policy above say. Of a method: the plain mean over clients, however many samples each has.",
    "alone": "The client's accuracy in the run of the method solo with the same seed: same data, same rounds, same local "
    "training, no server.",
    "gain": "Accuracy with its cluster minus accuracy alone, in percentage points. Better: above 0; worse: below 0. A "
    "difference of one test sample counts.",
    "cluster": "Clients that are served the same model after the last measured round, numbered by their first member.",
    "ARI": "Adjusted Rand index between the clusters and the groups that the split planted: 1 the same, 0 as by chance.",
    "worst": "The lowest accuracy of a client.",
    "megabytes": "1,000,000 bytes of arrays in messages between server and clients, both directions, from the ledger; "
    "framing and encryption of a real network come on top.",
    "kinds": "Models: models sent either way, to be trained or judged. Signatures: PACFL's singular vectors and noise. "
    "Histograms: counts of labels. Control: everything else, such as SCAFFOLD's variates or a chosen model's number.",
    "seconds": "Wall time of this simulation on the machine named below, measuring included.",
    "band": "Plus and minus one standard deviation (n - 1) over seeds. Each seed cuts other clients, so clients are only "
    "compared within a seed.",
    "target": "The first measured round whose mean accuracy (over clients, then seeds) is at least this.",
    "height of merge": "The distance of the two parts that a merge of the tree joins, by the method's own linkage.",
    "threshold": "Where a tree is cut: parts nearer than this join.",
}


def commands(readings: Sequence[Reading]) -> list[str]:
    """Return the commands that made these runs, each once."""
    return list(dict.fromkeys(_command(reading.record) for reading in readings))


def _command(record: Mapping[str, Any]) -> str:
    typed = [str(word) for word in record.get("command") or []]
    if record.get("asked") is None:
        return f"# begun from Python: {clean(shlex.join(typed))}"
    return clean(shlex.join(["ilk", *typed[1:]]))


def facts(readings: Sequence[Reading]) -> list[tuple[str, str]]:
    """Return what the runs ran on, as name and value; a value that differs between runs has one entry for each."""
    found: dict[str, dict[str, None]] = {}
    for reading in readings:
        for name, value in _facts(reading):
            found.setdefault(name, {})[value] = None
    return [(name, "; ".join(values)) for name, values in found.items()]


def _facts(reading: Reading) -> list[tuple[str, str]]:
    config, record = reading.config, reading.record
    versions, machine = record.get("versions") or {}, record.get("machine") or {}
    origin = (record.get("federation") or {}).get("origin") or {}
    return [
        ("data", clean(f"{config['data']} ({', '.join(map(str, origin.values()))})" if origin else config["data"])),
        ("split", clean(f"{config['split']}, {len(reading.ids)} clients, test policy {config['test_policy']}")),
        ("rounds", f"{config['rounds']}, cohort {config.get('cohort')}, measured every {config.get('eval_every')}"),
        ("model", clean(config.get("model"))),
        ("seeds", str(reading.seed)),
        ("versions", clean(", ".join(f"{name} {number}" for name, number in versions.items()))),
        ("machine", clean(f"{machine.get('system')}, {machine.get('cores')} cores, engine {record.get('engine')}")),
    ]


def runs_table(readings: Sequence[Reading]) -> list[list[str]]:
    """Return a row a run: its series, seed, options, folder, and the file that says who owns what."""
    return [
        [
            reading.series,
            str(reading.seed),
            json.dumps(reading.config["options"], ensure_ascii=False),
            str(reading.record.get("begun", "")),
            clean(reading.folder),
            _split_file(reading.folder),
        ]
        for reading in readings
    ]


def _split_file(folder: Path | None) -> str:
    path = (folder or Path()) / PARTITION
    try:
        return f"{PARTITION}, SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}…"
    except OSError:
        return f"{PARTITION} is missing"
