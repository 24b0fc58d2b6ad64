"""Errors of tuning, under Ray's names."""
from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["TuneError"]


class TuneError(Exception):
    """A run or a trial failed."""


class ExperimentInterrupted(KeyboardInterrupt):
    """Ctrl-C ended the run; its state is complete."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, 1)
    if close:
        return f" Did you mean {close[0]}?"
    return f" Known: {', '.join(names)}." if names else ""
