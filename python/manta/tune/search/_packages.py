"""Searchers of other packages, called through Python."""
from __future__ import annotations

import importlib
from typing import Any

from .searcher import Searcher

__all__ = ["AxSearch", "BayesOptSearch", "HyperOptSearch", "NevergradSearch", "OptunaSearch"]


def _package(name: str, pip: str, user: str, native: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(f"{user} needs the package {name}: pip install {pip}. The native searcher {native} needs no "
                          "package") from None


class OptunaSearch(Searcher):
    """Optuna's samplers by ask and tell."""

    def __init__(self, space: Any = None, metric: Any = None, mode: Any = None,
                 points_to_evaluate: list[dict[str, Any]] | None = None, sampler: Any = None, seed: int | None = None,
                 evaluated_rewards: list[float] | None = None) -> None:
        super().__init__(metric, mode)
        self._optuna = _package("optuna", "optuna", "OptunaSearch", "TPESearch")
        self._space, self._points = space, list(points_to_evaluate or [])
        self._rewards = list(evaluated_rewards or [])
        self._sampler = sampler or self._optuna.samplers.TPESampler(seed=seed)
        self._study: Any = None
        self._trials: dict[str, Any] = {}

    def _begin(self) -> None:
        self._optuna.logging.set_verbosity(self._optuna.logging.WARNING)
        modes = self._mode if isinstance(self._mode, (list, tuple)) else [self._mode]
        self._study = self._optuna.create_study(
            sampler=self._sampler, directions=["minimize" if one == "min" else "maximize" for one in modes])
        for number, point in enumerate(self._points):
            if number < len(self._rewards):
                self.add_evaluated_point(point, self._rewards[number])
            else:
                self._study.enqueue_trial(point)

    def set_search_properties(self, metric: Any, mode: Any, config: dict[str, Any], **spec: Any) -> bool:
        self._metric, self._mode = self._metric or metric, self._mode or mode
        if self._space is None and config:
            self._space = config
        self._begin()
        return True

    def _distributions(self) -> dict[str, Any]:
        if not isinstance(self._space, dict):
            raise ValueError("OptunaSearch: the space must be a dictionary or a function of an Optuna trial")
        from .._space import Space

        module = self._optuna.distributions
        out = {}
        for name, kind, low, high, q, log, values, *_ in Space(self._space).parameters:
            if kind == "float":
                out[name] = module.FloatDistribution(low, high, log=log, step=q or None)
            elif kind == "int":
                out[name] = module.IntDistribution(int(low), int(high) - (0 if q else 1), log=log, step=int(q) or 1)
            elif kind in ("choice", "grid"):
                out[name] = module.CategoricalDistribution(values)
            else:
                raise ValueError(f"{name}: Optuna has no normal distribution: use uniform, or a native searcher")
        return out

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self._study is None:
            self._begin()
        assert self._study is not None
        if callable(self._space):  # define by run
            trial = self._study.ask()
            constants = self._space(trial) or {}
            self._trials[trial_id] = trial
            return {**constants, **trial.params}
        trial = self._study.ask(self._distributions())
        self._trials[trial_id] = trial
        from .._space import Space

        config: dict[str, Any] = Space(self._space).decode(trial.params)[0]
        return config

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if isinstance(self._metric, str) and self._metric in result:
            self._trials[trial_id].report(result[self._metric], int(result.get("training_iteration", 0)))

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        trial = self._trials[trial_id]
        metrics = self._metric if isinstance(self._metric, (list, tuple)) else [self._metric]
        if error or result is None or any(metric not in result for metric in metrics):
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(trial, [float(result[metric]) for metric in metrics])

    def add_evaluated_point(self, parameters: dict[str, Any], value: float, error: bool = False, pruned: bool = False,
                            intermediate_values: list[float] | None = None) -> None:
        self._study.add_trial(self._optuna.trial.create_trial(params=parameters, value=value,
                                                              distributions=self._distributions()))

    def get_state(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_optuna"}


class HyperOptSearch(Searcher):
    """hyperopt's TPE."""

    def __init__(self, space: Any = None, metric: str | None = None, mode: str | None = None,
                 points_to_evaluate: list[dict[str, Any]] | None = None, n_initial_points: int = 20,
                 random_state_seed: int | None = None, gamma: float = 0.25) -> None:
        super().__init__(metric, mode)
        self._hyperopt = _package("hyperopt", "hyperopt", "HyperOptSearch", "TPESearch")
        raise NotImplementedError("HyperOptSearch: the adapter is not written yet; use the native TPESearch")


def _absent(name: str, package: str, pip: str, native: str) -> type:
    class Absent(Searcher):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            _package(package, pip, name, native)
            raise NotImplementedError(f"{name}: the adapter is not written yet; use the native {native}")

    Absent.__name__ = Absent.__qualname__ = name
    return Absent


AxSearch = _absent("AxSearch", "ax", "ax-platform", "GPSearch")
BayesOptSearch = _absent("BayesOptSearch", "bayes_opt", "bayesian-optimization", "GPSearch")
NevergradSearch = _absent("NevergradSearch", "nevergrad", "nevergrad", "CMAESSearch")
