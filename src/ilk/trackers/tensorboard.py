"""TensorBoard: event files in the run's own folder, so ``tensorboard --logdir runs`` finds every run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter


class TensorBoard:
    """Writes each round's numbers as scalars, and the configuration as text."""

    def begin(self, folder: Path, name: str, config: Mapping[str, Any]) -> None:
        """Open an event file; what an interrupted process wrote before is superseded by the rounds told again."""
        self.writer = SummaryWriter(str(folder / "tensorboard"), purge_step=1)
        lines = "\n".join(f"    {key}: {json.dumps(value)}" for key, value in {"run": name, **config}.items())
        self.writer.add_text("configuration", lines, 0)

    def round(self, number: int, values: Mapping[str, float]) -> None:
        """Write the scalars; a viewer shows them at once."""
        for key, value in values.items():
            self.writer.add_scalar(f"ilk/{key}", value, number)
        self.writer.flush()

    def end(self, finished: bool) -> None:
        """Close the event file."""
        self.writer.close()
