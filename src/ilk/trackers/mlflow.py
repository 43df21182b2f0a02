"""MLflow: a run of the experiment "ilk", where MLFLOW_TRACKING_URI says; without it where MLflow itself decides."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

EXPERIMENT = "ilk"


class MLflow:
    """Logs each round's numbers as metrics, the configuration as parameters, and the folder as a tag."""

    def begin(self, folder: Path, name: str, config: Mapping[str, Any]) -> None:
        """Begin a run of MLflow's."""
        self.client = MlflowClient()
        experiment = self.client.get_experiment_by_name(EXPERIMENT)
        where = experiment.experiment_id if experiment else self.client.create_experiment(EXPERIMENT)
        self.run = self.client.create_run(where, run_name=name).info.run_id
        params = [Param(key, str(value)[:500]) for key, value in config.items()]
        self.client.log_batch(self.run, params=params[:100], tags=[RunTag("ilk.folder", str(folder.resolve()))])

    def round(self, number: int, values: Mapping[str, float]) -> None:
        """Log the metrics of a round."""
        now = int(time.time() * 1000)
        metrics = [Metric(key, value, now, number) for key, value in values.items() if math.isfinite(value)]
        self.client.log_batch(self.run, metrics=metrics)

    def end(self, finished: bool) -> None:
        """End it: finished, or killed where the run was stopped."""
        self.client.set_terminated(self.run, "FINISHED" if finished else "KILLED")
