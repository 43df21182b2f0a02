"""Without a compiler the installation succeeds, and says in one line what that means."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def copy(tmp_path):
    """The sources without what was built of them."""
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
    return tmp_path


@pytest.mark.needs_no_kernels
@pytest.mark.parametrize("inplace", [True, False])
def test_a_compiler_that_fails(copy, inplace):
    broken = {**os.environ, "CC": "/bin/false", "CXX": "/bin/false"}
    command = [sys.executable, "setup.py", "build_ext", *(["--inplace"] if inplace else [])]
    done = subprocess.run(command, cwd=copy, env=broken, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "native kernels were not built" in done.stderr + done.stdout
    assert "PyTorch will be used" in done.stderr + done.stdout
    assert not list(copy.rglob("*.so"))
    script = (
        "import ilk, ilk.native.choose as choose; assert choose.sets() == [] and choose.instruction_set() is None;"
        "from torch import nn; from ilk.params import Net; from ilk.native import resolve;"
        "print(ilk.__file__, resolve(Net(nn.Linear(5, 3)), (5,), 'auto'))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(copy / "src")},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == [str(copy / "src" / "ilk" / "__init__.py"), "torch"]
    assert found.stderr.count("kernels are not built") == 1


@pytest.mark.needs_no_kernels
def test_a_failure_can_be_asked_for(copy):
    broken = {**os.environ, "CC": "/bin/false", "CXX": "/bin/false", "ILK_REQUIRE_NATIVE": "1"}
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    assert subprocess.run(command, cwd=copy, env=broken, capture_output=True).returncode != 0
