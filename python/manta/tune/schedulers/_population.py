"""Schedulers of a population, under Ray's names: trials clone the checkpoints of better ones."""
from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from ..sample import Domain, Function
from .trial_scheduler import NativeScheduler

__all__ = ["PB2", "PopulationBasedTraining", "PopulationBasedTrainingReplay"]


class _Population(NativeScheduler):
    pauses = True

    def __init__(self, time_attr: str, metric: str | None, mode: str | None, explore: Callable[..., Any] | None,
                 **options: Any) -> None:
        name = type(self).__name__
        if options["perturbation_interval"] <= 0:
            raise ValueError(f"{name}(perturbation_interval={options['perturbation_interval']}): it must be above 0")
        if not 0 <= options["quantile_fraction"] <= 0.5:
            raise ValueError(f"{name}(quantile_fraction={options['quantile_fraction']}): it must be between 0 and 0.5")
        if explore is not None and not callable(explore):
            raise ValueError(f"{name}(custom_explore_fn={explore!r}): it must be a function of a configuration")
        super().__init__(time_attr, metric, mode, **options)
        self._explore = explore

    def native_options(self, space: Any) -> dict[str, Any]:
        options = dict(self.options)
        if self._explore is not None:
            options["custom_explore"] = _explorer(self._explore, space)
        return options

    def spec(self, mode: str, seed: int | None, space: Any) -> tuple[str, dict[str, Any]]:
        kind, options = super().spec(mode, seed, space)
        return kind, {**options, "seed": seed or 0}


def _explorer(function: Callable[..., Any], space: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def explore(flat: dict[str, Any]) -> dict[str, Any]:
        config = space.decode(dict(flat))[0]
        changed = function(config)
        if not isinstance(changed, dict):
            raise ValueError(f"custom_explore_fn returned {changed!r}: it must return the configuration")
        known = space.encode(changed)
        for name in flat:
            if name not in known and name in changed:
                known[name] = changed[name]
        return {name: known.get(name, value) for name, value in flat.items()}

    return explore


class PopulationBasedTraining(_Population):
    """Trials that do badly go on from the checkpoints of trials that do well, with changed values."""

    kind = "pbt"

    def __init__(self, time_attr: str = "time_total_s", metric: str | None = None, mode: str | None = None,
                 perturbation_interval: float = 60.0, burn_in_period: float = 0.0,
                 hyperparam_mutations: dict[str, Any] | None = None, quantile_fraction: float = 0.25,
                 resample_probability: float = 0.25, perturbation_factors: tuple[float, float] = (1.2, 0.8),
                 custom_explore_fn: Callable[..., Any] | None = None, log_config: bool = True,
                 require_attrs: bool = True, synch: bool = False) -> None:
        mutations = dict(hyperparam_mutations or {})
        if not mutations and custom_explore_fn is None:
            raise ValueError("PopulationBasedTraining: it changes nothing without hyperparam_mutations or "
                             "custom_explore_fn: give one of them")
        super().__init__(time_attr, metric, mode, custom_explore_fn, perturbation_interval=perturbation_interval,
                         burn_in_period=burn_in_period, quantile_fraction=quantile_fraction,
                         resample_probability=resample_probability, perturbation_factors=list(perturbation_factors),
                         log_config=log_config, require_attrs=require_attrs, synch=synch)
        self._mutations = mutations
        self._rows = list(_mutations(mutations, ""))

    def native_options(self, space: Any) -> dict[str, Any]:
        return {**super().native_options(space), "mutations": self._rows}

    def sampled_keys(self) -> list[tuple[str, Any]]:
        """Keys that the space need not have: a trial draws them at first, as in Ray."""
        return [(path, spec) for path, spec in self._rows]


def _mutations(node: dict[str, Any], prefix: str) -> Any:
    for key, value in node.items():
        path = f"{prefix}{key}"
        if isinstance(value, Function):
            yield path, ("function", value.func)
        elif isinstance(value, Domain):
            yield path, ("domain", *value.described())
        elif isinstance(value, (list, tuple)):
            if not value:
                raise ValueError(f"hyperparam_mutations[{path!r}] is empty: it needs at least one value")
            yield path, ("values", list(value))
        elif isinstance(value, dict) and set(value) == {"grid_search"}:
            raise ValueError(f"hyperparam_mutations[{path!r}]: grid_search does not belong there: use a list")
        elif isinstance(value, dict):
            yield from _mutations(value, f"{path}/")
        elif isinstance(value, (types.FunctionType, types.BuiltinFunctionType)) or callable(value):
            yield path, ("function", value)
        else:
            raise ValueError(f"hyperparam_mutations[{path!r}]={value!r}: it must be a list, a function, a domain or a "
                             "dictionary of these")


class PB2(_Population):
    """Population based bandits: new values come from a Gaussian process over hyperparam_bounds."""

    kind = "pb2"

    def __init__(self, time_attr: str = "time_total_s", metric: str | None = None, mode: str | None = None,
                 perturbation_interval: float = 60.0, hyperparam_bounds: dict[str, Any] | None = None,
                 quantile_fraction: float = 0.25, log_config: bool = True, require_attrs: bool = True,
                 synch: bool = False, custom_explore_fn: Callable[..., Any] | None = None) -> None:
        rows = list(_bounds(hyperparam_bounds or {}, ""))
        if not rows:
            raise ValueError("PB2: it changes nothing without hyperparam_bounds, as {'lr': [0.001, 0.1]}")
        super().__init__(time_attr, metric, mode, custom_explore_fn, perturbation_interval=perturbation_interval,
                         quantile_fraction=quantile_fraction, log_config=log_config, require_attrs=require_attrs,
                         synch=synch)
        self._rows = rows

    def native_options(self, space: Any) -> dict[str, Any]:
        return {**super().native_options(space), "bounds": self._rows}

    def sampled_keys(self) -> list[tuple[str, Any]]:
        return [(path, ("domain", "float", low, high, 0.0, False, None)) for path, low, high in self._rows]


def _bounds(node: dict[str, Any], prefix: str) -> Any:
    for key, value in node.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _bounds(value, f"{path}/")
            continue
        if not isinstance(value, (list, tuple)) or len(value) != 2 or value[0] >= value[1]:
            raise ValueError(f"hyperparam_bounds[{path!r}]={value!r}: it must be [low, high] with low < high")
        yield path, float(value[0]), float(value[1])


class PopulationBasedTrainingReplay(NativeScheduler):
    """Repeats the schedule of values of one trial, from its pbt_policy file."""

    kind, pauses = "pbt_replay", True

    def __init__(self, policy_file: str) -> None:
        import os

        path = os.path.expanduser(policy_file)
        if not os.path.exists(path):
            raise ValueError(f"PopulationBasedTrainingReplay({policy_file!r}): there is no such file; a run with "
                             "PopulationBasedTraining writes pbt_policy_<trial>.txt into its folder")
        super().__init__("training_iteration", None, None)
        with open(path) as file:
            self._policy = file.read()

    def spec(self, mode: str, seed: int | None, space: Any) -> tuple[str, dict[str, Any]]:
        return self.kind, {"policy": self._policy}
