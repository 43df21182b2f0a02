"""What the README shows works: the public names, and a method and a task of one's own."""

import subprocess
import sys

import ilk

SCRIPT = '''
import ilk
from ilk.params import average


@ilk.options
class Mine(ilk.Method[ilk.State]):
    """The mean."""

    name = "mine"

    def round(self, server, state, cohort):
        trained = server.ask(self.training, cohort, self.message(state))
        return ilk.State(models=average(trained.models, trained.sizes))


federation = ilk.federation("digits", split="rotate:4", clients=4)
mine = ilk.run(Mine(local=ilk.LocalSGD(epochs=1)), federation, rounds=1, engine="inline")
theirs = ilk.run(ilk.FedAvg(local=ilk.LocalSGD(epochs=1)), federation, rounds=1, engine="inline")
assert mine.model_digest == theirs.model_digest
print(mine.accuracy, mine.clusters, mine.history["accuracy"], len(mine.history.to_pandas()))
'''


def test_every_public_name_is_there_and_is_what_it_says():
    for name in ilk.__all__:
        assert getattr(ilk, name) is not None
    assert callable(ilk.options)
    assert ilk.PACFL.name == "pacfl"


def test_a_script_with_a_method_of_its_own(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "c00" in done.stdout
