import sys

import pytest

from ilk import methods
from ilk.errors import IlkError

TOY = '''
from typing import ClassVar
from ilk import Method, State, options
from ilk.params import average


@options
class Toy(Method[State]):
    """The plain mean."""

    name: ClassVar[str] = "toy"

    def round(self, server, state, cohort):
        trained = server.ask(self.training, cohort, self.message(state))
        return State(models=average(trained.models, [1] * len(trained)))
'''


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a package of somebody else's, as pip would: a module, and metadata with an entry point."""

    def install(entry, source=TOY):
        (tmp_path / "toy_methods.py").write_text(source)
        info = tmp_path / "toy_methods-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-methods\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[ilk.methods]\n{entry}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        methods.registry.cache_clear()

    yield install
    methods.registry.cache_clear()
    sys.modules.pop("toy_methods", None)


@pytest.mark.parametrize("engine", ["inline", "workers"])
def test_a_method_of_another_package_is_as_good_as_any(installed, capsys, engine, tmp_path, monkeypatch):
    from ilk.cli import main

    installed("toy = toy_methods:Toy")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "run",
                "toy",
                "--clients",
                "4",
                "--rounds",
                "1",
                "--epochs",
                "1",
                "--engine",
                engine,
                "--json",
                "--out",
                "r",
            ]
        )
    assert ended.value.code == 0
    assert '"method": "toy"' in capsys.readouterr().out


def test_an_entry_point_that_is_no_method_is_refused(installed):
    installed("toy = toy_methods:average")
    with pytest.raises(IlkError, match="toy_methods:average"):
        methods.registry()


def test_nothing_outside_the_methods_names_one():
    """The registry finds methods by itself; only the demo, which is about three of them, may name any."""
    from pathlib import Path

    import ilk

    root = Path(ilk.__file__).parent
    names = {f'"{name}"' for name in methods.registry()}
    naming = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if path.parent.name != "methods" and any(name in path.read_text() for name in names)
    }
    assert naming <= {"cli/demo.py"}
