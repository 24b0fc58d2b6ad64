"""Stoppers: when a trial or the whole run ends, under Ray's names."""
from __future__ import annotations

import collections
import datetime
import inspect
import time
from collections.abc import Callable
from typing import Any

from .error import suggestion

__all__ = ["CombinedStopper", "ExperimentPlateauStopper", "FunctionStopper", "MaximumIterationStopper", "NoopStopper",
           "Stopper", "TimeoutStopper", "TrialPlateauStopper"]


class Stopper:
    """Called with every result in the driver; True ends the trial. stop_all() ends the run."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        raise NotImplementedError(f"{type(self).__name__} has no method __call__")

    def stop_all(self) -> bool:
        raise NotImplementedError(f"{type(self).__name__} has no method stop_all")


class CombinedStopper(Stopper):
    """Ends what any of the stoppers ends."""

    def __init__(self, *stoppers: Stopper) -> None:
        self._stoppers = stoppers

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return any([one(trial_id, result) for one in self._stoppers])

    def stop_all(self) -> bool:
        return any([one.stop_all() for one in self._stoppers])


class NoopStopper(Stopper):
    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return False


class FunctionStopper(Stopper):
    """A function (trial_id, result) -> bool."""

    def __init__(self, function: Callable[[str, dict[str, Any]], bool]) -> None:
        self._function = function

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return bool(self._function(trial_id, result))

    def stop_all(self) -> bool:
        return False

    @classmethod
    def is_valid_function(cls, fn: Any) -> bool:
        return callable(fn) and not isinstance(fn, Stopper)


class MaximumIterationStopper(Stopper):
    def __init__(self, max_iter: int) -> None:
        self._max_iter = max_iter
        self._iter: dict[str, int] = collections.defaultdict(int)

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self._iter[trial_id] += 1
        return self._iter[trial_id] >= self._max_iter

    def stop_all(self) -> bool:
        return False


class TrialPlateauStopper(Stopper):
    """Ends a trial whose last results hardly differ."""

    def __init__(self, metric: str, std: float = 0.01, num_results: int = 4, grace_period: int = 4,
                 metric_threshold: float | None = None, mode: str | None = None) -> None:
        if metric_threshold is not None and mode not in ("min", "max"):
            raise ValueError(f"TrialPlateauStopper(metric_threshold={metric_threshold}, mode={mode!r}): the mode must "
                             "be 'min' or 'max'")
        self._metric, self._std, self._num_results, self._grace_period = metric, std, num_results, grace_period
        self._threshold, self._mode = metric_threshold, mode
        self._iter: dict[str, int] = collections.defaultdict(int)
        self._results: dict[str, collections.deque[float]] = {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        value = _value(result, self._metric)
        window = self._results.setdefault(trial_id, collections.deque(maxlen=self._num_results))
        window.append(value)
        self._iter[trial_id] += 1
        if self._iter[trial_id] < self._grace_period or len(window) < self._num_results:
            return False
        if self._threshold is not None:
            if self._mode == "min" and value > self._threshold or self._mode == "max" and value < self._threshold:
                return False
        return _deviation(list(window)) < self._std

    def stop_all(self) -> bool:
        return False


class ExperimentPlateauStopper(Stopper):
    """Ends the run when its best results hardly differ."""

    def __init__(self, metric: str, std: float = 0.001, top: int = 10, mode: str = "min", patience: int = 0) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"ExperimentPlateauStopper(mode={mode!r}): it must be 'min' or 'max'")
        if patience < 0:
            raise ValueError(f"ExperimentPlateauStopper(patience={patience}): it must be 0 or more")
        if top <= 1:
            raise ValueError(f"ExperimentPlateauStopper(top={top}): it must be 2 or more")
        if std <= 0:
            raise ValueError(f"ExperimentPlateauStopper(std={std}): it must be above 0")
        self._metric, self._std, self._top, self._mode, self._patience = metric, std, top, mode, patience
        self._iterations = 0
        self._should_stop = False
        self._best: list[float] = []

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self._best.append(_value(result, self._metric))
        self._best = sorted(self._best, reverse=self._mode == "max")[:self._top]
        if len(self._best) == self._top and _deviation(self._best) <= self._std:
            self._iterations += 1
        else:
            self._iterations = 0
        self._should_stop = self._iterations > self._patience
        return self._should_stop

    def stop_all(self) -> bool:
        return self._should_stop


class TimeoutStopper(Stopper):
    """Ends the run after a time. Time between an end and a restore does not count."""

    def __init__(self, timeout: int | float | datetime.timedelta) -> None:
        seconds = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else timeout
        if not isinstance(seconds, (int, float)) or seconds <= 0:
            raise ValueError(f"TimeoutStopper({timeout!r}): it must be a number of seconds above 0, or a timedelta")
        self._budget = float(seconds)
        self._started = -1.0

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        now = time.monotonic()
        if self._started < 0:
            self._started = now
        return now - self._started >= self._budget

    def __getstate__(self) -> dict[str, Any]:
        used = 0.0 if self._started < 0 else time.monotonic() - self._started
        return {"_budget": max(self._budget - used, 0.0), "_started": -1.0}


def _value(result: dict[str, Any], metric: str) -> float:
    found = lookup(result, metric)
    if found is None:
        raise ValueError(f"metric {metric!r} of the stopper is not in the result; it has: "
                         f"{', '.join(map(str, result))}.{suggestion(metric, map(str, result))}")
    return float(found)


def _deviation(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return float((sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5)


def lookup(result: dict[str, Any], metric: str) -> Any:
    """The value of a metric; "a/b" is key b of the dictionary a."""
    if metric in result:
        return result[metric]
    node: Any = result
    for part in metric.split("/"):
        if not isinstance(node, dict) or part not in node:
            return None
        node = node[part]
    return node


def make_stopper(stop: Any) -> tuple[dict[str, float], Stopper | None]:
    """RunConfig(stop=...) as thresholds, which the native controller applies, and a stopper written in Python."""
    if stop is None:
        return {}, None
    if isinstance(stop, Stopper):
        return ({}, None) if type(stop) is NoopStopper else ({}, stop)
    if isinstance(stop, (list, tuple)):
        if not all(isinstance(one, Stopper) for one in stop):
            raise ValueError(f"RunConfig(stop={stop!r}): all items of the list must be Stoppers")
        return {}, CombinedStopper(*stop)
    if isinstance(stop, dict):
        for key, value in stop.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ValueError(f"RunConfig(stop={stop!r}): the value of {key!r} must be a number")
        return {str(key): float(value) for key, value in stop.items()}, None
    if callable(stop):
        try:
            inspect.signature(stop).bind("trial", {})
        except TypeError:
            raise ValueError(f"RunConfig(stop={stop!r}): the function must take two arguments, (trial_id, "
                             "result)") from None
        except ValueError:
            pass
        return {}, FunctionStopper(stop)
    raise ValueError(f"RunConfig(stop={stop!r}): it must be a dictionary, a function of (trial_id, result) or a "
                     "Stopper")
