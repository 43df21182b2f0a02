"""The answer in two or three sentences, made from the numbers and from nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ilk.protocols import MEANING, POLICY
from ilk.report.numbers import ALONE, TOGETHER, Summary

NAMED = 5  # losers that are named; the others are in the table


def answer(found: Sequence[Summary]) -> list[str]:
    """Return the sentences: what was reached, who is with whom and gains, what it cost."""
    if not found:
        return ["No run here has a measured round yet, so there is nothing to answer from."]
    lead = best(found)
    return [sentence for sentence in (_reached(lead, found), _gains(lead, found), _cost(lead, found)) if sentence]


def best(found: Sequence[Summary]) -> Summary:
    """Return what the answer is about: of all that is not training alone, the most accurate."""
    together = [one for one in found if one.method != ALONE] or list(found)
    return max(together, key=lambda one: one.accuracy)


def _reached(lead: Summary, found: Sequence[Summary]) -> str:
    others = sorted((one for one in found if one is not lead), key=lambda one: -one.accuracy)
    means = f", mean over {len(lead.runs)} seeds" if len(lead.runs) > 1 else ""
    said = f"{lead.series} finds {_groups(lead)} and reaches {lead.accuracy:.1f} % on average over clients{means}"
    if lead.method == ALONE:
        said = f"Alone, clients reach {lead.accuracy:.1f} % on average{means}"
    if others:
        compared = [f"{_name(one)} {one.accuracy:.1f} %" for one in others[:4]]
        more = f" and {len(others) - 4} more below" if len(others) > 4 else ""
        said += f"; {', '.join(compared)}{more}"
    return said + "."


def _name(one: Summary) -> str:
    return "training alone" if one.method == ALONE else one.series


def _groups(one: Summary) -> str:
    low, high = min(one.found), max(one.found)
    if low < high:
        return f"{low} to {high} clusters, depending on the seed,"
    if one.clusters == 1:
        return "one cluster of all clients"
    if one.clusters == one.clients:
        return "no two clients that belong together (every client is a cluster of its own)"
    exact = ", exactly the planted groups," if one.exact else ""
    return f"{one.clusters} clusters{exact}"


def _gains(one: Summary, found: Sequence[Summary]) -> str:
    """Say who gains and who loses against training alone."""
    if one.method == ALONE:
        return ""
    if not one.gains:
        return "Who gains cannot be said: nobody trained alone on these data. " + how_to_get_alone(one.runs[0].config)
    better, worse, everyone = one.better, one.worse, len(one.gains)
    same = everyone - len(better) - len(worse)
    means = "" if len(one.counted) < 2 else f" (seed {one.runs[0].seed}; {_over_seeds(one)})"
    if not better and not worse:
        return f"Nobody gains and nobody loses: all {everyone} clients do exactly as well as alone{means}."
    mean = sum(row["gain"] for row in one.gains) / everyone
    if len(better) == everyone:
        return f"All {everyone} clients do better than alone, by {mean:.1f} points on average{means}."
    parts = [f"{len(better)} of {everyone} clients do better than alone{_by(better)}{means}"]
    if not better:
        parts = [f"Nobody does better than alone{means}"]
    if same:
        parts.append(f"{same} {'does' if same == 1 else 'do'} the same")
    if worse:
        names = ", ".join(str(row["client"]) for row in worse[:NAMED])
        more = f" and {len(worse) - NAMED} more" if len(worse) > NAMED else ""
        verb = "does" if len(worse) == 1 else "do"
        parts.append(f"{len(worse)} {verb} worse{_by(worse)}: {names}{more}")
    return "; ".join(parts) + f". Over all clients that is {mean:+.1f} points."


def _by(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    mean = sum(abs(row["gain"]) for row in rows) / len(rows)
    return f", by {mean:.1f} points" + (" on average" if len(rows) > 1 else "")


def _over_seeds(one: Summary) -> str:
    better = [counts[0] for counts in one.counted]
    return f"over {len(better)} seeds {min(better)} to {max(better)} better"


def how_to_get_alone(config: Mapping[str, Any]) -> str:
    """Say how to get the run that is missing."""
    return f"Run both together: ilk compare {ALONE} {config['method']} --data {config['data']} --split {config['split']} ..."


def _cost(lead: Summary, found: Sequence[Summary]) -> str:
    """Say what crossed, in megabytes and against FedAvg where that was run."""
    if lead.method == ALONE:
        return ""
    reference = next((one for one in found if one.method == TOGETHER and one is not lead), None)
    said = f"{lead.series} moved {lead.megabytes:,.1f} MB"
    if reference is None or reference.megabytes == 0:
        return f"{said} between server and clients."
    times = lead.megabytes / reference.megabytes
    return f"{said} between server and clients, {times:.{1 if times >= 0.1 else 3}f} times the bytes of {reference.series}."


def protocol_in_plain_words(config: Mapping[str, Any]) -> str:
    """Say what an accuracy on this page is."""
    protocol, policy = str(config.get("protocol")), str(config.get("test_policy"))
    meaning = dict(MEANING).get(protocol, "unknown to this version")  # type: ignore[call-overload]  # of a newer version
    said = f"Accuracy (protocol “{protocol}”): {meaning}."
    if protocol != "global":
        said += f" Test data (policy “{policy}”): {POLICY.get(policy, 'unknown to this version')}."
    leaks = list(config.get("leaks") or [])
    if not leaks and config.get("auxiliary_from") == "test" and config.get("auxiliary"):
        leaks = [f"the server's {config['auxiliary']} samples are from the test split"]
    return said + "".join(f" A leak: {leak}." for leak in leaks)
