"""Result and ResultGrid: what a run gives back, under Ray's names."""
from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from typing import Any

from ._checkpoint import Checkpoint
from ._trial import Trial, load_error, read_results
from .error import suggestion
from .stopper import lookup

__all__ = ["Result", "ResultGrid"]

_SCOPES = ("last", "avg", "last-5-avg", "last-10-avg", "all")


class Result:
    """The last result of one trial, and where its files are."""

    def __init__(self, metrics: dict[str, Any] | None, checkpoint: Checkpoint | None, error: BaseException | None,
                 path: str, best_checkpoints: list[tuple[Checkpoint, dict[str, Any]]] | None = None,
                 config: dict[str, Any] | None = None) -> None:
        self.metrics, self.checkpoint, self.error, self.path = metrics, checkpoint, error, path
        self.best_checkpoints = best_checkpoints or []
        self._config = config

    @property
    def config(self) -> dict[str, Any] | None:
        if self._config is not None:
            return self._config
        return (self.metrics or {}).get("config")

    @property
    def metrics_dataframe(self) -> Any:
        """All results of the trial; needs pandas."""
        import pandas

        rows = read_results(self.path)
        return pandas.json_normalize(rows, sep="/") if rows else pandas.DataFrame()

    @property
    def filesystem(self) -> Any:
        import pyarrow.fs

        return pyarrow.fs.LocalFileSystem()

    def get_best_checkpoint(self, metric: str, mode: str) -> Checkpoint | None:
        """The checkpoint whose result has the best value of the metric."""
        if mode not in ("min", "max"):
            raise ValueError(f"get_best_checkpoint(mode={mode!r}): it must be 'min' or 'max'")
        if not self.best_checkpoints:
            raise RuntimeError(f"the trial in {self.path} has no checkpoints")
        pairs = [(lookup(metrics, metric), checkpoint) for checkpoint, metrics in self.best_checkpoints]
        known = [(value, checkpoint) for value, checkpoint in pairs if value is not None and not math.isnan(value)]
        if not known:
            names = sorted({key for _, metrics in self.best_checkpoints for key in metrics})
            raise RuntimeError(f"no checkpoint has the metric {metric!r}.{suggestion(metric, names)}")
        sign = 1.0 if mode == "min" else -1.0
        return min(known, key=lambda pair: sign * float(pair[0]))[1]

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> Result:
        """The result of a trial's folder."""
        folder = os.path.abspath(os.path.expanduser(os.fspath(path)))
        if not os.path.isdir(folder):
            raise RuntimeError(f"{folder} is not the folder of a trial")
        rows = read_results(folder)
        checkpoints = []
        for row in rows:
            name = row.get("checkpoint_dir_name")
            if name and os.path.isdir(os.path.join(folder, name)):
                checkpoints.append((Checkpoint(os.path.join(folder, name)), row))
        config = None
        try:
            import pickle

            with open(os.path.join(folder, "params.pkl"), "rb") as file:
                config = pickle.load(file)
        except Exception:
            pass
        error = load_error(folder, "") if os.path.exists(os.path.join(folder, "error.txt")) else None
        return cls(rows[-1] if rows else None, checkpoints[-1][0] if checkpoints else None, error, folder, checkpoints,
                   config)

    def __repr__(self) -> str:
        shown = {key: value for key, value in (self.metrics or {}).items() if key not in _AUTOMATIC}
        parts = [f"metrics={shown!r}", f"path={self.path!r}"]
        if self.error is not None:
            parts.insert(0, f"error={type(self.error).__name__}({str(self.error)[:80]!r})")
        return f"Result({', '.join(parts)})"


_AUTOMATIC = {"time_this_iter_s", "time_total_s", "timestamp", "date", "pid", "hostname", "node_ip", "trial_id",
              "experiment_tag", "config", "done", "time_since_restore", "iterations_since_restore", "timesteps_total",
              "episodes_total", "checkpoint_dir_name"}


def result_of(trial: Trial) -> Result:
    pairs = [(Checkpoint(folder), metrics) for folder, metrics in trial.checkpoints]
    return Result(trial.last_result or None, trial.checkpoint, trial.get_error(), trial.path, pairs, trial.config)


def score(trial: Trial, metric: str, mode: str, scope: str) -> float | None:
    """The value by which trials are compared."""
    if scope == "last":
        found = lookup(trial.last_result, metric)
        return None if found is None else float(found)
    values = [float(value) for value in (lookup(row, metric) for row in read_results(trial.path)) if value is not None]
    if not values:
        return None
    if scope == "all":
        known = [value for value in values if not math.isnan(value)] or values
        return min(known) if mode == "min" else max(known)
    count = {"avg": len(values), "last-5-avg": 5, "last-10-avg": 10}[scope]
    return sum(values[-count:]) / len(values[-count:])


def best_trial(trials: list[Trial], metric: str | None, mode: str | None, scope: str = "last",
               filter_nan_and_inf: bool = True) -> Trial | None:
    """The trial with the best value; nan is never the best."""
    if metric is None:
        raise ValueError("a metric is needed to compare trials: pass metric=..., or set it in TuneConfig")
    if mode not in ("min", "max"):
        raise ValueError(f"mode={mode!r}: it must be 'min' or 'max'")
    if scope not in _SCOPES:
        raise ValueError(f"scope={scope!r}: it must be one of {', '.join(_SCOPES)}")
    best: tuple[float, Trial] | None = None
    for trial in trials:
        value = score(trial, metric, mode, scope)
        if value is None or (filter_nan_and_inf and not math.isfinite(value)):
            continue
        if best is None or math.isnan(best[0]) or (value < best[0] if mode == "min" else value > best[0]):
            best = (value, trial)
    return best[1] if best is not None else None


class ResultGrid:
    """The results of all trials."""

    def __init__(self, trials: list[Trial], path: str, metric: Any = None, mode: Any = None) -> None:
        self._trials, self._path, self._metric, self._mode = trials, path, metric, mode
        self._results: list[Result | None] = [None] * len(trials)

    @property
    def experiment_path(self) -> str:
        return self._path

    @property
    def filesystem(self) -> Any:
        import pyarrow.fs

        return pyarrow.fs.LocalFileSystem()

    @property
    def errors(self) -> list[BaseException]:
        return [error for error in (trial.get_error() for trial in self._trials) if error is not None]

    @property
    def num_errors(self) -> int:
        return sum(trial.status == Trial.ERROR for trial in self._trials)

    @property
    def num_terminated(self) -> int:
        return sum(trial.status == Trial.TERMINATED for trial in self._trials)

    def __len__(self) -> int:
        return len(self._trials)

    def __getitem__(self, index: int) -> Result:
        found = self._results[index]
        if found is None:
            found = self._results[index] = result_of(self._trials[index])
        return found

    def __iter__(self) -> Iterator[Result]:
        return (self[index] for index in range(len(self)))

    def get_best_result(self, metric: str | None = None, mode: str | None = None, scope: str = "last",
                        filter_nan_and_inf: bool = True) -> Result:
        """The result of the best trial."""
        if len(self._trials) == 1 and metric is None and self._metric is None:
            return self[0]
        chosen = metric or (self._metric[0] if isinstance(self._metric, (list, tuple)) else self._metric)
        order = mode or (self._mode[0] if isinstance(self._mode, (list, tuple)) else self._mode)
        trial = best_trial(self._trials, chosen, order, scope, filter_nan_and_inf)
        if trial is None:
            names = sorted({key for one in self._trials for key in one.last_result} - _AUTOMATIC)
            raise RuntimeError(f"no trial has a finite value of the metric {chosen!r}; "
                               f"{self.num_errors} of {len(self)} trials failed.{suggestion(str(chosen), names)}")
        return self[self._trials.index(trial)]

    def get_dataframe(self, filter_metric: str | None = None, filter_mode: str | None = None) -> Any:
        """One row per trial: its last result, or the one with the best value of filter_metric. Needs pandas."""
        import pandas

        rows = []
        for trial in self._trials:
            row = dict(trial.last_result)
            if filter_metric is not None:
                if filter_mode not in ("min", "max"):
                    raise ValueError(f"get_dataframe(filter_mode={filter_mode!r}): it must be 'min' or 'max'")
                known = [one for one in read_results(trial.path) if lookup(one, filter_metric) is not None]
                if known:
                    row = (min if filter_mode == "min" else max)(
                        known, key=lambda one: float(lookup(one, str(filter_metric))))
            row["logdir"] = trial.path
            row["config"] = trial.config
            rows.append(row)
        return pandas.json_normalize(json.loads(json.dumps(rows, default=str)), sep="/") if rows else pandas.DataFrame()

    def get_pareto(self) -> list[Result]:
        """The results that no other one beats in all objectives (metric and mode are lists)."""
        if not isinstance(self._metric, (list, tuple)):
            raise ValueError("get_pareto needs several objectives: TuneConfig(metric=[...], mode=[...])")
        signs = [1.0 if mode == "min" else -1.0 for mode in self._mode]
        points = []
        for index, trial in enumerate(self._trials):
            values = [lookup(trial.last_result, metric) for metric in self._metric]
            if all(value is not None and math.isfinite(value) for value in values):
                points.append((index, [sign * float(value) for sign, value in zip(signs, values, strict=True)]))
        return [self[index] for index, point in points
                if not any(_dominates(other, point) for _, other in points)]

    def __repr__(self) -> str:
        return f"ResultGrid<[\n  {(','+chr(10)+'  ').join(repr(result) for result in self)}\n]>"


def _dominates(a: list[float], b: list[float]) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True)) and a != b
