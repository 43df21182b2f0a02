"""The command line, called in this process: a subprocess spends seconds on imports."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import dataclass

import pytest

from ilk.cli import main

FAST = ["--clients", "4", "--rounds", "2", "--epochs", "1", "--batch-size", "50", "--engine", "inline"]


@dataclass
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        """The object on stdout, which must hold nothing else."""
        assert self.code == 0, self.err
        assert self.out.count("\n") == 1, self.out
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """No test sees the user's own folders or terminal; relative paths are below a folder of its own."""
    monkeypatch.setenv("ILK_CACHE", str(tmp_path / ".cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # of processes that a test kills
    for variable in (
        *("ILK_DATA", "ILK_DOWNLOAD", "ILK_DEBUG", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"),
        *("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"),
    ):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", list(sys.path))  # ilk adds the working folder, for the user's models


@pytest.fixture
def ilk(capsys):
    """Run a command line; give its exit code and what it printed."""

    def call(*arguments):
        capsys.readouterr()
        try:
            main([str(argument) for argument in arguments])
            code = 0
        except SystemExit as ended:
            code = ended.code or 0
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return call


@pytest.fixture
def fast(ilk):
    """Run a small job: `fast("run", "solo", ...)`; what is given here wins over what makes it small."""

    def call(command, *arguments):
        return ilk(command, *FAST, *arguments)

    return call


@pytest.fixture
def module(tmp_path):
    """Write a user's module into the working folder; it is forgotten afterwards."""
    written = []

    def write(name, text):
        (tmp_path / "here" / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        written.append(name)

    yield write
    for name in written:
        sys.modules.pop(name, None)
