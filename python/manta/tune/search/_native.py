"""The searchers of the C++ library."""
from __future__ import annotations

from typing import Any

from .searcher import NativeSearcher

__all__ = ["BOHBSearch", "BasicVariantGenerator", "CMAESSearch", "GPSearch", "HaltonSearch", "NSGA2Search",
           "SobolSearch", "TPESearch"]

_Points = list[dict[str, Any]] | None


class BasicVariantGenerator(NativeSearcher):
    """Grid x samples, counted as Ray counts them."""

    kind, learns = "random", False

    def __init__(self, points_to_evaluate: _Points = None, max_concurrent: int = 0, constant_grid_search: bool = False,
                 random_state: Any = None) -> None:
        if isinstance(random_state, bool) or (random_state is not None and not isinstance(random_state, int)):
            raise ValueError(f"BasicVariantGenerator(random_state={random_state!r}): Manta takes an integer: its "
                             "random numbers are keyed by it and by the number of the trial")
        super().__init__(points_to_evaluate=points_to_evaluate, seed=random_state,
                         max_concurrent=max_concurrent or None, constant_grid_search=constant_grid_search or None)


class TPESearch(NativeSearcher):
    """Tree-structured Parzen estimator. Lists for metric and mode: several objectives."""

    kind = "tpe"

    def __init__(self, space: dict[str, Any] | None = None, metric: Any = None, mode: Any = None,
                 points_to_evaluate: _Points = None, evaluated_rewards: list[float] | None = None,
                 seed: int | None = None, n_startup_trials: int | None = None, n_ei_candidates: int | None = None,
                 prior_weight: float | None = None, constant_liar: bool | None = None) -> None:
        super().__init__(space, metric, mode, points_to_evaluate, evaluated_rewards, seed,
                         n_startup_trials=n_startup_trials, n_ei_candidates=n_ei_candidates, prior_weight=prior_weight,
                         constant_liar=constant_liar)


class GPSearch(NativeSearcher):
    """Gaussian process. `acquisition`: "log_ei", "lcb", "pi" or "gp_hedge"; `kappa` belongs to "lcb"."""

    kind = "gp"

    def __init__(self, space: dict[str, Any] | None = None, metric: Any = None, mode: Any = None,
                 points_to_evaluate: _Points = None, evaluated_rewards: list[float] | None = None,
                 seed: int | None = None, n_startup_trials: int | None = None, acquisition: str | None = None,
                 kappa: float | None = None) -> None:
        if acquisition not in (None, "log_ei", "lcb", "pi", "gp_hedge"):
            raise ValueError(f"GPSearch(acquisition={acquisition!r}): it must be 'log_ei', 'lcb', 'pi' or 'gp_hedge'")
        super().__init__(space, metric, mode, points_to_evaluate, evaluated_rewards, seed,
                         n_startup_trials=n_startup_trials, acquisition=acquisition, kappa=kappa)


class CMAESSearch(NativeSearcher):
    """Covariance matrix adaptation. `restart`: "none", "ipop" or "bipop"."""

    kind = "cmaes"

    def __init__(self, space: dict[str, Any] | None = None, metric: Any = None, mode: Any = None,
                 points_to_evaluate: _Points = None, evaluated_rewards: list[float] | None = None,
                 seed: int | None = None, x0: dict[str, Any] | None = None, sigma0: float | None = None,
                 population: int | None = None, separable: bool | None = None, restart: str | None = None) -> None:
        if restart not in (None, "none", "ipop", "bipop"):
            raise ValueError(f"CMAESSearch(restart={restart!r}): it must be 'none', 'ipop' or 'bipop'")
        super().__init__(space, metric, mode, points_to_evaluate, evaluated_rewards, seed, x0=x0, sigma0=sigma0,
                         population=population, separable=separable, restart=restart)

    def native_options(self, space: Any) -> dict[str, Any]:
        options = super().native_options(space)
        if "x0" in options:
            options["x0"] = space.encode(options["x0"])
        return options


class SobolSearch(NativeSearcher):
    """A sequence of low discrepancy; at most 64 keys."""

    kind, learns = "sobol", False

    def __init__(self, space: dict[str, Any] | None = None, metric: Any = None, mode: Any = None,
                 points_to_evaluate: _Points = None, evaluated_rewards: list[float] | None = None,
                 seed: int | None = None, scramble: bool = True) -> None:
        super().__init__(space, metric, mode, points_to_evaluate, evaluated_rewards, seed, scramble=scramble)


class HaltonSearch(SobolSearch):
    kind = "halton"


class BOHBSearch(NativeSearcher):
    """One model per budget; use it with HyperBandForBOHB."""

    kind = "bohb"

    def __init__(self, space: dict[str, Any] | None = None, metric: Any = None, mode: Any = None,
                 points_to_evaluate: _Points = None, evaluated_rewards: list[float] | None = None,
                 seed: int | None = None, min_points_in_model: int | None = None, top_n_percent: float | None = None,
                 num_samples: int | None = None, random_fraction: float | None = None) -> None:
        super().__init__(space, metric, mode, points_to_evaluate, evaluated_rewards, seed,
                         min_points_in_model=min_points_in_model, top_n_percent=top_n_percent, num_samples=num_samples,
                         random_fraction=random_fraction)


class NSGA2Search(NativeSearcher):
    """Several objectives: metric and mode are lists."""

    kind = "nsga2"

    def __init__(self, space: dict[str, Any] | None = None, metric: Any = None, mode: Any = None,
                 points_to_evaluate: _Points = None, evaluated_rewards: list[float] | None = None,
                 seed: int | None = None, population: int | None = None, crossover_probability: float | None = None,
                 mutation_probability: float | None = None) -> None:
        super().__init__(space, metric, mode, points_to_evaluate, evaluated_rewards, seed, population=population,
                         crossover_probability=crossover_probability, mutation_probability=mutation_probability)
