"""What Flower and Ray would do unasked: reports on use, looks for newer versions, installing packages. All of it is off."""

from __future__ import annotations

import os
from collections.abc import Mapping

OFF: Mapping[str, str] = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # its future default; without it Ray warns at every start
}


def switch_off() -> None:
    """Switch it off in this process and those that it starts; before Flower is imported, which reads it then."""
    os.environ.update(OFF)
