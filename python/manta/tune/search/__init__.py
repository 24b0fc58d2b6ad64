"""Searchers, under Ray's names. The native searchers need no other package."""
from __future__ import annotations

from typing import Any

from ..error import suggestion
from ._native import (
    BasicVariantGenerator,
    BOHBSearch,
    CMAESSearch,
    GPSearch,
    HaltonSearch,
    NSGA2Search,
    SobolSearch,
    TPESearch,
)
from ._packages import AxSearch, BayesOptSearch, HyperOptSearch, NevergradSearch, OptunaSearch
from .searcher import ConcurrencyLimiter, Repeater, SearchAlgorithm, Searcher

__all__ = ["AxSearch", "BOHBSearch", "BasicVariantGenerator", "BayesOptSearch", "CMAESSearch", "ConcurrencyLimiter",
           "GPSearch", "HaltonSearch", "HyperOptSearch", "NSGA2Search", "NevergradSearch", "OptunaSearch", "Repeater",
           "SEARCH_ALG_IMPORT", "SearchAlgorithm", "Searcher", "SobolSearch", "TPESearch", "create_searcher"]

SEARCH_ALG_IMPORT: dict[str, type[Any]] = {
    "random": BasicVariantGenerator, "variant_generator": BasicVariantGenerator, "tpe": TPESearch,
    "hyperopt": TPESearch, "gp": GPSearch, "bayesopt": GPSearch, "cmaes": CMAESSearch, "sobol": SobolSearch,
    "halton": HaltonSearch, "bohb": BOHBSearch, "nsga2": NSGA2Search, "optuna": OptunaSearch, "ax": AxSearch,
    "nevergrad": NevergradSearch,
}


def create_searcher(search_alg: str, **kwargs: Any) -> Any:
    """A searcher by its name."""
    name = search_alg.lower()
    if name not in SEARCH_ALG_IMPORT:
        hint = suggestion(name, SEARCH_ALG_IMPORT)
        raise ValueError(f"search_alg={search_alg!r} is not the name of a searcher.{hint}")
    return SEARCH_ALG_IMPORT[name](**kwargs)
