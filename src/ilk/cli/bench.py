"""``ilk bench``: what ilk promises about speed and size, measured on this machine."""

from __future__ import annotations

import typer


def bench(context: typer.Context) -> None:
    """Measure speed and size on this machine: ratios side by side in one run. `ilk bench --help` lists the parts."""
    from ilk.bench import main

    main(context.args)
