"""inspect_serializability, under Ray's name: which part of a value cannot be pickled."""
from __future__ import annotations

import sys
from typing import Any, NamedTuple, TextIO

from .. import _serialize

__all__ = ["FailureTuple", "inspect_serializability"]


class FailureTuple(NamedTuple):
    """A part that cannot be pickled although all of its own parts can, or that lies as deep as was looked."""

    obj: Any
    name: str
    parent: Any

    def __hash__(self) -> int:
        return hash((id(self.obj), self.name))


def inspect_serializability(base_obj: Any, name: str | None = None, depth: int = 3,
                            print_file: TextIO | None = None) -> tuple[bool, set[FailureTuple]]:
    """Can it be sent to a task? If not, the parts that are to blame, which are printed, too."""
    failures: set[FailureTuple] = set()
    _look(base_obj, name or _serialize._name_of(base_obj), None, depth, failures, set())
    for failure in failures:
        print(f"cannot be pickled: {failure.name} ({type(failure.obj).__qualname__})", file=print_file or sys.stdout)
    return not failures, failures


def _look(value: Any, name: str, parent: Any, depth: int, failures: set[FailureTuple], seen: set[int]) -> bool:
    """Is it, or a part of it, to blame?"""
    if id(value) in seen or _serialize._pickles(value):
        return False
    seen.add(id(value))
    parts = _serialize._parts(value, name) if depth > 0 else []
    found = [_look(part, text, value, depth - 1, failures, seen) for part, text in parts]
    if not any(found):
        failures.add(FailureTuple(value, name, parent))
    return True
