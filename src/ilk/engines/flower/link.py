"""The program of a server: Flower's SuperLink, which ends when the process that started it does."""

from __future__ import annotations

import os
import threading
import time

from ilk.engines.flower.quiet import switch_off

switch_off()


def end_with_parent() -> None:
    """End this process at once when its parent has; a SuperLink that waits for its connections would hold the port."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Run the SuperLink."""
    from flwr.superlink.cli.flower_superlink import flower_superlink

    end_with_parent()
    flower_superlink()


if __name__ == "__main__":
    main()
