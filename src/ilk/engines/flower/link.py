"""The program of a server: Flower's SuperLink, which ends when the process that started it does."""

from __future__ import annotations

import sys

from ilk.engines.flower.quiet import switch_off

switch_off()


def main() -> None:
    """Run the SuperLink; the first argument is the process to end with."""
    from flwr.supercore.app_utils import start_parent_process_monitor
    from flwr.superlink.cli.flower_superlink import flower_superlink

    start_parent_process_monitor(int(sys.argv.pop(1)))
    flower_superlink()


if __name__ == "__main__":
    main()
