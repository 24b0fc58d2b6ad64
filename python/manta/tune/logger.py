"""Loggers: callbacks that write the results of trials, under Ray's names.

The CSV, JSON and TensorBoard files are written natively (manta._tune) without any of these classes. Naming one of them
in `callbacks` changes nothing but that it is on even with TUNE_DISABLE_AUTO_CALLBACK_LOGGERS=1.
"""
from __future__ import annotations

from typing import Any

from .callback import Callback

__all__ = ["CSVLoggerCallback", "JsonLoggerCallback", "LoggerCallback", "TBXLoggerCallback"]


class LoggerCallback(Callback):
    """Subclasses override log_trial_start, log_trial_result, log_trial_end, …"""

    def log_trial_start(self, trial: Any) -> None:
        pass

    def log_trial_restore(self, trial: Any) -> None:
        pass

    def log_trial_save(self, trial: Any) -> None:
        pass

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        pass

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        pass

    def _started(self, trial: Any) -> bool:
        known: set[str] = self.__dict__.setdefault("_known_trials", set())
        if trial.trial_id in known:
            return True
        known.add(trial.trial_id)
        return False

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if not self._started(trial):
            self.log_trial_start(trial)

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any],
                        **info: Any) -> None:
        if not self._started(trial):
            self.log_trial_start(trial)
        self.log_trial_result(iteration, trial, result)

    def on_trial_restore(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.log_trial_restore(trial)

    def on_trial_save(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.log_trial_save(trial)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.log_trial_end(trial, failed=False)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.log_trial_end(trial, failed=True)


class _Native(Callback):
    kind = ""


class JsonLoggerCallback(_Native):
    """result.json: one JSON object per line."""

    kind = "json"


class CSVLoggerCallback(_Native):
    """progress.csv: the header comes from the first result."""

    kind = "csv"


class TBXLoggerCallback(_Native):
    """events.out.tfevents.*: what TensorBoard reads."""

    kind = "tensorboard"


def native_kinds(callbacks: list[Any]) -> tuple[bool, bool, bool]:
    """(csv, json, tensorboard): which files the run writes."""
    import os

    if os.environ.get("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "0") != "1":
        return True, True, True
    kinds = {one.kind for one in callbacks if isinstance(one, _Native)}
    return "csv" in kinds, "json" in kinds, "tensorboard" in kinds
