"""Write the output of commands into the docs, so that no number there was typed by hand.

A block begins with a line ``<!-- output of: COMMAND -->`` and ends with ``<!-- end -->``; what is between is replaced.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"(<!-- output of: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def output(command: str) -> str:
    """Run a command in an empty folder and return what it prints on stdout."""
    print(f"$ {command}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NO_COLOR": "1"}
        done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command} failed:\n{done.stderr}")
    return "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines())


def main(paths: list[str]) -> None:
    """Write the blocks of these files, by default of the README and everything in docs/."""
    for path in [Path(p) for p in paths] or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text()
        new = BLOCK.sub(lambda block: f"{block[1]}```text\n{output(block[2])}\n```\n{block[3]}", text)
        if new != text:
            path.write_text(new)


if __name__ == "__main__":
    main(sys.argv[1:])
