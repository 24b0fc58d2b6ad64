"""How an actor's state is saved, and how another process takes it up (doc/failures.md).

What is saved is what the class says (``__manta_save__``), else what pickle would (``__getstate__``, or the attributes);
and where ``random`` and ``numpy.random`` are, which begin at a number made of the actor's id: so a call that is
repeated draws the same numbers again.
"""
from __future__ import annotations

import sys
from typing import Any

SAVE = "__manta_save__"
LOAD = "__manta_load__"
STREAMS = "__manta_streams__"  # generators of its methods that are being read (_stream.py)

_OWN, _WHOLE, _STATE = "own", "whole", "state"
_begun: dict[str, int] = {}  # what the generators of random numbers looked like when the actor was made


def check_class(cls: type) -> None:
    if hasattr(cls, SAVE) != hasattr(cls, LOAD):
        raise TypeError(f"actor class {cls.__qualname__} has one of {SAVE} and {LOAD}: it needs both, or none")


def seed(actor: str) -> None:
    """Before the constructor of the actor with this id; empty: there is none."""
    if not actor:
        return
    random = sys.modules.get("random")
    if random is not None:
        random.seed(actor)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(int(actor[:8], 16))
    _begun.update({name: _digest(state) for name, state in _random_states().items()})


def _random_states() -> dict[str, Any]:
    states: dict[str, Any] = {}
    random = sys.modules.get("random")
    if random is not None:
        states["random"] = random.getstate()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        states["numpy"] = numpy.random.get_state()
    return states


def _digest(state: Any) -> int:
    return hash(state if type(state[1]) is tuple else (state[1].tobytes(), *state[2:]))


def save(actor: Any) -> tuple[Any, ...]:
    if getattr(actor, "__dict__", {}).get(STREAMS):
        raise RuntimeError("a generator of it is being read, which cannot be saved; it is tried again later")
    drawn = {name: state for name, state in _random_states().items() if _digest(state) != _begun.get(name)}
    cls: Any = type(actor)
    if hasattr(cls, SAVE):
        return _OWN, actor.__manta_save__(), drawn
    if cls.__reduce_ex__ is not object.__reduce_ex__ or cls.__reduce__ is not object.__reduce__:
        return _WHOLE, actor, drawn
    state = actor.__getstate__()
    if type(state) is dict and STREAMS in state:
        state = {key: value for key, value in state.items() if key != STREAMS}
    items = list(actor) if isinstance(actor, list) else dict(actor) if isinstance(actor, dict) else None
    return _STATE, (state, items), drawn


def load(actor: Any, saved: tuple[Any, ...]) -> Any:
    kind, state, drawn = saved
    if kind == _OWN:
        actor.__manta_load__(state)
    elif kind == _WHOLE:
        actor = state
    else:
        _load_state(actor, *state)
    if "random" in drawn:
        import random

        random.setstate(drawn["random"])
    if "numpy" in drawn:
        import numpy

        numpy.random.set_state(drawn["numpy"])
    return actor


def _load_state(actor: Any, state: Any, items: Any) -> None:
    if items is not None:
        actor.clear()
        actor.extend(items) if isinstance(items, list) else actor.update(items)
    cls: Any = type(actor)
    if hasattr(cls, "__setstate__"):
        actor.__setstate__(state)
        return
    attributes, slots = state if type(state) is tuple and len(state) == 2 else (state, None)
    if hasattr(actor, "__dict__"):
        if cls.__getstate__ is object.__getstate__:  # type: ignore[attr-defined]
            actor.__dict__.clear()  # else what the class left out of its state is as the constructor made it
        actor.__dict__.update(attributes or {})
    for name, value in (slots or {}).items():
        setattr(actor, name, value)
