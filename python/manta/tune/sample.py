"""Search spaces: which values each key of a configuration may take (doc/tune.md, Python)."""
from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["Categorical", "Domain", "Float", "Function", "Integer", "When", "choice", "grid_search", "lograndint",
           "loguniform", "qlograndint", "qloguniform", "qrandint", "qrandn", "quniform", "randint", "randn",
           "sample_from", "uniform", "when"]


class Domain:
    """The values of one key."""

    def sample(self, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        """`size` values at random; one value, not a list, when size is 1."""
        source = random_state if isinstance(random_state, random.Random) else (
            random if random_state is None else random.Random(_seed(random_state)))
        values = [self._draw(source, config) for _ in range(size)]
        return values[0] if size == 1 else values

    def _draw(self, source: Any, config: Any) -> Any:
        raise NotImplementedError

    def described(self) -> tuple[Any, ...]:
        """(kind, low, high, q, log, values) as manta._tune reads it."""
        raise NotImplementedError

    def is_valid(self, value: Any) -> bool:
        raise NotImplementedError

    def is_grid(self) -> bool:
        return False

    def is_function(self) -> bool:
        return False


def _seed(state: Any) -> int:
    if isinstance(state, int):
        return state
    return int(state.integers(2**32) if hasattr(state, "integers") else state.randint(2**31))


class Float(Domain):
    def __init__(self, lower: float, upper: float, q: float = 0.0, log: bool = False, normal: bool = False) -> None:
        self.lower, self.upper = float(lower), float(upper)  # of a normal one: mean and standard deviation
        self.q, self.log, self.normal = float(q), log, normal

    def _draw(self, source: Any, config: Any) -> float:
        if self.normal:
            value = source.gauss(self.lower, self.upper)
        elif self.log:
            value = math.exp(source.uniform(math.log(self.lower), math.log(self.upper)))
        else:
            value = source.uniform(self.lower, self.upper)
        if not self.q:
            return float(value)
        value = round(value / self.q) * self.q
        return float(value if self.normal else min(max(value, self.lower), self.upper))

    def described(self) -> tuple[Any, ...]:
        return ("normal" if self.normal else "float", self.lower, self.upper, self.q, self.log, None)

    def is_valid(self, value: Any) -> bool:
        return isinstance(value, (int, float)) and (self.normal or self.lower <= value <= self.upper)

    def __repr__(self) -> str:
        name = ("q" if self.q else "") + ("randn" if self.normal else "loguniform" if self.log else "uniform")
        return f"{name}({self.lower}, {self.upper}{f', {self.q}' if self.q else ''})"


class Integer(Domain):
    def __init__(self, lower: int, upper: int, q: int = 1, log: bool = False) -> None:
        self.lower, self.upper = int(lower), int(upper)
        self.q, self.log = int(q), log

    def _draw(self, source: Any, config: Any) -> int:
        if self.log:
            value = math.exp(source.uniform(math.log(self.lower), math.log(self.upper)))
        elif self.q > 1:
            value = source.uniform(self.lower, self.upper)
        else:
            return int(source.randrange(self.lower, self.upper))
        if self.q > 1:
            return int(min(max(round(value / self.q) * self.q, self.lower), self.upper))
        return int(min(max(int(value), self.lower), self.upper - 1))

    def described(self) -> tuple[Any, ...]:
        return ("int", float(self.lower), float(self.upper), float(self.q), self.log, None)

    def is_valid(self, value: Any) -> bool:
        return isinstance(value, int) and self.lower <= value <= self.upper

    def __repr__(self) -> str:
        return f"{'lograndint' if self.log else 'randint'}({self.lower}, {self.upper})"


class Categorical(Domain):
    def __init__(self, categories: Sequence[Any], grid: bool = False) -> None:
        self.categories = list(categories)
        self.grid = grid

    def _draw(self, source: Any, config: Any) -> Any:
        return source.choice(self.categories)

    def described(self) -> tuple[Any, ...]:
        return ("grid" if self.grid else "choice", 0.0, 0.0, 0.0, False, self.categories)

    def is_valid(self, value: Any) -> bool:
        return value in self.categories

    def is_grid(self) -> bool:
        return self.grid

    def __len__(self) -> int:
        return len(self.categories)

    def __getitem__(self, index: int) -> Any:
        return self.categories[index]

    def __repr__(self) -> str:
        return f"{'grid_search' if self.grid else 'choice'}({self.categories!r})"


class Function(Domain):
    """A value that a function computes from the other values of the configuration."""

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func

    def _draw(self, source: Any, config: Any) -> Any:
        return self.call(config)

    def call(self, spec: Any) -> Any:
        try:
            import inspect

            takes = len(inspect.signature(self.func).parameters)
        except (TypeError, ValueError):
            takes = 1
        return self.func(spec) if takes else self.func()

    def is_function(self) -> bool:
        return True

    def is_valid(self, value: Any) -> bool:
        return True

    def __repr__(self) -> str:
        return f"sample_from({getattr(self.func, '__name__', self.func)!s})"


class When:
    """A part of a space that exists only if another key has one of some values."""

    def __init__(self, key: str, values: list[Any], space: Any) -> None:
        self.key, self.values, self.space = key, values, space


def _base(base: float | None) -> None:
    if base is not None:
        warnings.warn("base= does not change a log-uniform distribution: leave it out", stacklevel=3)


def uniform(lower: float, upper: float) -> Float:
    """A number between lower and upper."""
    return Float(lower, upper)


def quniform(lower: float, upper: float, q: float) -> Float:
    return Float(lower, upper, q)


def loguniform(lower: float, upper: float, base: float | None = None) -> Float:
    """A number whose logarithm is uniform."""
    _base(base)
    return Float(lower, upper, log=True)


def qloguniform(lower: float, upper: float, q: float, base: float | None = None) -> Float:
    _base(base)
    return Float(lower, upper, q, log=True)


def randint(lower: int, upper: int) -> Integer:
    """An integer; the upper bound is exclusive."""
    return Integer(lower, upper)


def qrandint(lower: int, upper: int, q: int = 1) -> Integer:
    """A multiple of q; the upper bound is inclusive when q > 1."""
    return Integer(lower, upper, q)


def lograndint(lower: int, upper: int, base: float | None = None) -> Integer:
    _base(base)
    return Integer(lower, upper, log=True)


def qlograndint(lower: int, upper: int, q: int, base: float | None = None) -> Integer:
    _base(base)
    return Integer(lower, upper, q, log=True)


def randn(mean: float = 0.0, sd: float = 1.0) -> Float:
    return Float(mean, sd, normal=True)


def qrandn(mean: float, sd: float, q: float) -> Float:
    return Float(mean, sd, q, normal=True)


def choice(categories: Sequence[Any]) -> Categorical:
    """One of some objects of any type."""
    return Categorical(categories)


def grid_search(values: Sequence[Any]) -> dict[str, list[Any]]:
    """Every value is tried (with every value of the other grids)."""
    return {"grid_search": list(values)}


def sample_from(func: Callable[..., Any]) -> Function:
    """A value computed from the others: ``sample_from(lambda spec: spec.config.lr * 2)``."""
    return Function(func)


def when(condition: Mapping[str, Any], space: Any) -> When:
    """``when({"optimizer": "sgd"}, uniform(0, 1))``: the key exists only if `optimizer` is "sgd" (a list: one of
    several values). The condition names one key, by its path from the top of the space ("model/kind").
    """
    if not isinstance(condition, Mapping) or len(condition) != 1:
        raise ValueError(f"when({condition!r}, ...): the condition must be a dictionary with one key, as "
                         "{'optimizer': 'sgd'}")
    (key, values), = condition.items()
    return When(key, list(values) if isinstance(values, (list, tuple, set)) else [values], space)
