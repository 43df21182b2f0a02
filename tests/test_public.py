"""What the README shows works: the public names, and a method and a task of one's own."""

import re
import subprocess
import sys
from pathlib import Path

import ilk

README = (Path(__file__).parent.parent / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
PLAYED = """
federation = ilk.federation("digits", split="rotate:4", clients=4)
local = ilk.LocalSGD(epochs=1)
mine, theirs = (ilk.run(m(local=local), federation, rounds=1, engine="inline") for m in (FedAvg, ilk.FedAvg))
assert mine.model_digest == theirs.model_digest
"""
MODELS = "from torch import nn\n\n\ndef make(shape, classes):\n    return nn.Linear(shape[0], classes)\n"
SITES = """
import ilk
import numpy as np
random = np.random.default_rng(0)
for site in ("north", "south", "east"):
    globals()[f"x_{site}"], globals()[f"y_{site}"] = random.random((30, 4)), random.integers(0, 3, 30)
"""


def ran(tmp_path, script):
    (tmp_path / "script.py").write_text(script)
    (tmp_path / "my_models.py").write_text(MODELS)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_public_name_is_there_and_is_what_it_says():
    for name in ilk.__all__:
        assert getattr(ilk, name) is not None
    assert callable(ilk.options)
    assert ilk.PACFL.name == "pacfl"


def test_the_readme_has_the_blocks_that_are_played_here():
    assert len(BLOCKS) == 3


def test_five_lines(tmp_path):
    assert "c00" in ran(tmp_path, BLOCKS[0].replace("rounds=20", "rounds=1"))


def test_own_arrays_and_an_own_model(tmp_path):
    ran(tmp_path, SITES + BLOCKS[1].replace("rounds=20", "rounds=1"))


def test_a_method_of_ones_own(tmp_path):
    ran(tmp_path, BLOCKS[2] + PLAYED)


def test_completion_offers_the_public_names():
    assert {"run", "federation", "PACFL", "FedAvg"} <= set(dir(ilk))
