"""ExperimentAnalysis: what tune.run returns, under Ray's names."""
from __future__ import annotations

import os
from typing import Any

from ._checkpoint import Checkpoint
from ._trial import Trial, read_results
from .result_grid import best_trial, result_of
from .stopper import lookup

__all__ = ["ExperimentAnalysis"]


class ExperimentAnalysis:
    """Looks at the trials of a run, or of a run's folder."""

    def __init__(self, experiment_checkpoint_path: str | os.PathLike[str], *, trials: list[Trial] | None = None,
                 default_metric: str | None = None, default_mode: str | None = None,
                 storage_filesystem: Any = None) -> None:
        self.experiment_path = os.path.abspath(os.path.expanduser(os.fspath(experiment_checkpoint_path)))
        if default_mode not in (None, "min", "max"):
            raise ValueError(f"ExperimentAnalysis(default_mode={default_mode!r}): it must be 'min' or 'max'")
        if trials is None:
            from ._restore import load_trials

            trials, metric, mode = load_trials(self.experiment_path)
            default_metric, default_mode = default_metric or metric, default_mode or mode
        self.trials = trials
        self.default_metric, self.default_mode = default_metric, default_mode

    def _metric(self, metric: str | None) -> str | None:
        return metric or self.default_metric

    def _mode(self, mode: str | None) -> str | None:
        return mode or self.default_mode

    def get_best_trial(self, metric: str | None = None, mode: str | None = None, scope: str = "last",
                       filter_nan_and_inf: bool = True) -> Trial | None:
        if len(self.trials) == 1:
            return self.trials[0]
        return best_trial(self.trials, self._metric(metric), self._mode(mode), scope, filter_nan_and_inf)

    def get_best_config(self, metric: str | None = None, mode: str | None = None,
                        scope: str = "last") -> dict[str, Any] | None:
        trial = self.get_best_trial(metric, mode, scope)
        return None if trial is None else trial.config

    def get_best_checkpoint(self, trial: Trial, metric: str | None = None,
                            mode: str | None = None) -> Checkpoint | None:
        if not trial.checkpoints:
            return None
        chosen = self._metric(metric)
        if chosen is None:
            raise ValueError("a metric is needed to compare checkpoints: pass metric=...")
        return result_of(trial).get_best_checkpoint(chosen, self._mode(mode) or "max")

    def get_last_checkpoint(self, trial: Trial | None = None, metric: str = "training_iteration",
                            mode: str = "max") -> Checkpoint | None:
        found = trial or self.get_best_trial(metric, mode)
        return None if found is None else found.checkpoint

    def get_all_configs(self, prefix: bool = False) -> dict[str, Any]:
        return {trial.path: {f"config/{key}": value for key, value in trial.config.items()} if prefix else trial.config
                for trial in self.trials}

    def _best(self) -> Trial:
        trial = self.get_best_trial()
        if trial is None:
            raise ValueError(f"no trial has a finite value of the metric {self.default_metric!r}")
        return trial

    @property
    def best_trial(self) -> Trial:
        return self._best()

    @property
    def best_config(self) -> dict[str, Any]:
        return self._best().config

    @property
    def best_checkpoint(self) -> Checkpoint | None:
        return self.get_best_checkpoint(self._best())

    @property
    def best_result(self) -> dict[str, Any]:
        return self._best().last_result

    @property
    def best_logdir(self) -> str:
        return self._best().path

    @property
    def best_dataframe(self) -> Any:
        return self.trial_dataframes[self._best().trial_id]

    @property
    def best_result_df(self) -> Any:
        import pandas

        return pandas.json_normalize([self.best_result], sep="/").set_index("trial_id")

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        return {trial.trial_id: trial.last_result for trial in self.trials}

    @property
    def results_df(self) -> Any:
        import pandas

        return pandas.json_normalize([trial.last_result for trial in self.trials], sep="/").set_index("trial_id")

    @property
    def trial_dataframes(self) -> dict[str, Any]:
        import pandas

        return {trial.trial_id: pandas.json_normalize(read_results(trial.path), sep="/") for trial in self.trials}

    def dataframe(self, metric: str | None = None, mode: str | None = None) -> Any:
        """One row per trial: its last result, or the one with the best value of the metric."""
        import pandas

        rows = []
        for trial in self.trials:
            row = trial.last_result
            if metric is not None:
                known = [one for one in read_results(trial.path) if lookup(one, metric) is not None]
                pick = min if self._mode(mode) == "min" else max
                row = pick(known, key=lambda one: float(lookup(one, str(metric)))) if known else row
            rows.append({**row, "logdir": trial.path})
        return pandas.json_normalize(rows, sep="/")

    @property
    def runner_data(self) -> dict[str, Any]:
        return {}
