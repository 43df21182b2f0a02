"""Build race.cpp with ThreadSanitizer, each kernel for its instruction set as in setup.py, and run it: `make sanitize`."""

from __future__ import annotations

import os
import platform
import runpy
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

ROOT = Path(__file__).parent.parent.parent


def main(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    with patch("setuptools.setup"):
        build = runpy.run_path(str(ROOT / "setup.py"))
    compiler, flags = os.environ.get("CXX", "g++"), [*build["FLAGS"], "-fsanitize=thread", "-g"]
    x86 = ["-DILK_X86=1"] if build["X86"] else []
    objects = []
    sources = {
        ROOT / build["KERNEL"] / name: options for name, options in build["SETS"].items() if name != "binding.cpp"
    }
    for source, options in {**sources, ROOT / "tests" / "native" / "race.cpp": []}.items():
        if source.name.startswith("avx") and not x86:
            continue
        objects.append(str(folder / f"{source.stem}.o"))
        subprocess.run([compiler, *flags, *x86, *options, "-c", str(source), "-o", objects[-1]], check=True)
    subprocess.run([compiler, "-fsanitize=thread", *objects, "-o", str(folder / "race")], check=True)
    # its shadow memory does not bear the randomised addresses of some kernels
    plain = ["setarch", platform.machine(), "--addr-no-randomize"] if sys.platform == "linux" else []
    return subprocess.run(
        [*plain, str(folder / "race")], env={**os.environ, "TSAN_OPTIONS": "halt_on_error=1"}
    ).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
