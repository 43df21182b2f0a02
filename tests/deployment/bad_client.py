"""A client that lies, each round in another way; run as a program by the tests: FOLDER DATA ADDRESS."""

import sys
from pathlib import Path

import numpy as np

from ilk.engines.flower import node
from ilk.engines.flower.client import Answering
from ilk.engines.flower.link import end_with_parent
from ilk.engines.flower.own import source
from ilk.engines.flower.wire import Parcel

HUGE = 12_000_000  # bytes: goes through the gate in pieces, and is more than any answer of the test may have


class Bad(Answering):
    """Answers as it should, and then spoils it."""

    def __call__(self, parcel):
        """Spoil the model that was trained."""
        reply = super().__call__(parcel)
        if "model" not in reply.arrays:
            return reply
        head, arrays = dict(reply.head), dict(reply.arrays)
        kind = {1: "shape", 2: "name", 3: "nan", 4: "huge"}.get(parcel.head["round"])
        if kind == "shape":
            arrays["model"] = arrays["model"][:-1]
        elif kind == "name":
            head["client"] = "a"
        elif kind == "huge":
            arrays["model"] = np.random.default_rng(0).random(HUGE // 4, np.float32)
        elif kind == "nan":
            arrays["model"] = np.full_like(arrays["model"], np.nan)
        return Parcel(head, arrays)


if __name__ == "__main__":
    end_with_parent()
    folder = Path(sys.argv[1])
    node.run(folder, Bad(folder.name, source(folder.name, sys.argv[2]), folder), sys.argv[3])
