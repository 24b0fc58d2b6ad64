"""Errors of tuning, under Ray's names."""
from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable
from typing import Any

__all__ = ["TuneError"]


class TuneError(Exception):
    """A run or a trial failed."""


class ExperimentInterrupted(KeyboardInterrupt):
    """Ctrl-C ended the run; its state is complete."""


class Checked(type):
    """The metaclass of classes whose unknown options raise an error that suggests the spelling."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        code = cls.__init__.__code__  # type: ignore[misc]
        known = code.co_varnames[1:code.co_argcount + code.co_kwonlyargcount]
        for name in kwargs:
            if name not in known and not code.co_flags & inspect.CO_VARKEYWORDS:
                raise TypeError(f"{cls.__name__} has no option {name!r}.{suggestion(name, known)}")
        return super().__call__(*args, **kwargs)


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, 1)
    if close:
        return f" Did you mean {close[0]}?"
    return f" Known: {', '.join(names)}." if names else ""
