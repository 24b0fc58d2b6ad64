"""ActorPool: work spread over a fixed set of actors, under Ray's names."""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .. import _core
from .._runtime import wait
from ..exceptions import ActorDiedError, ActorUnavailableError


def _first(ref: Any) -> Any:
    """Stands for a call with several returns, which are ready together."""
    return ref[0] if isinstance(ref, list) else ref


class ActorPool:
    """Gives each value to the next free actor: ``list(pool.map(lambda a, v: a.double.remote(v), [1, 2, 3]))``."""

    def __init__(self, actors: Iterable[Any]) -> None:
        self._idle = list(actors)
        if not self._idle:
            raise ValueError("an ActorPool needs an actor")
        self._busy: dict[Any, tuple[int, Any]] = {}  # by ref: number of the submission, actor
        self._refs: dict[int, Any] = {}  # by number, not yet given out
        self._next_number = 0
        self._next_return = 0
        self._waiting: deque[tuple[Callable[[Any, Any], Any], Any]] = deque()

    def submit(self, fn: Callable[[Any, Any], Any], value: Any) -> None:
        if not self._idle:
            self._waiting.append((fn, value))
            return
        actor = self._idle.pop()
        ref = fn(actor, value)
        self._busy[_first(ref)] = (self._next_number, actor)
        self._refs[self._next_number] = ref
        self._next_number += 1

    def has_next(self) -> bool:
        return bool(self._refs) or bool(self._waiting)

    def get_next(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """The next result, in the order of submission."""
        if not self.has_next():
            raise StopIteration("no more results to get")
        self._check_alive()
        if self._next_return not in self._refs:
            raise ValueError("get_next cannot follow get_next_unordered while results are open")
        ref = self._refs[self._next_return]
        if timeout is not None and not wait([_first(ref)], timeout=timeout)[0]:
            if not ignore_if_timedout:
                raise TimeoutError("the next result was not there in time")
            return None
        del self._refs[self._next_return]
        self._next_return += 1
        return self._take(ref)

    def get_next_unordered(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """Whichever result is there first."""
        if not self.has_next():
            raise StopIteration("no more results to get")
        self._check_alive()
        ready, _ = wait([_first(ref) for ref in self._refs.values()], timeout=timeout)
        if not ready:
            if not ignore_if_timedout:
                raise TimeoutError("no result was there in time")
            return None
        number = next(number for number, ref in self._refs.items() if _first(ref) == ready[0])
        ref = self._refs.pop(number)
        self._next_return = max(self._next_return, number + 1)
        return self._take(ref)

    def _check_alive(self) -> None:
        if not self._refs and not self._idle:
            raise ActorDiedError(f"all actors of the pool have died, and {len(self._waiting)} values wait for one: "
                                 "push another actor")

    def _take(self, ref: Any) -> Any:
        wait([_first(ref)])
        entry = self._busy.pop(_first(ref), None)
        try:
            value = _core.get(ref)
        except ActorDiedError as problem:
            if entry is not None and isinstance(problem, ActorUnavailableError):  # it comes back
                self._return(entry[1])
            raise
        except BaseException:
            if entry is not None:
                self._return(entry[1])
            raise
        if entry is not None:
            self._return(entry[1])
        return value

    def _return(self, actor: Any) -> None:
        self._idle.append(actor)
        if self._waiting:
            self.submit(*self._waiting.popleft())

    def map(self, fn: Callable[[Any, Any], Any], values: Iterable[Any]) -> Iterator[Any]:
        """Results in the order of the values."""
        for value in values:
            self.submit(fn, value)

        def results() -> Iterator[Any]:
            while self.has_next():
                yield self.get_next()

        return results()

    def map_unordered(self, fn: Callable[[Any, Any], Any], values: Iterable[Any]) -> Iterator[Any]:
        """Results as they come."""
        for value in values:
            self.submit(fn, value)

        def results() -> Iterator[Any]:
            while self.has_next():
                yield self.get_next_unordered()

        return results()

    def has_free(self) -> bool:
        return bool(self._idle) and not self._waiting

    def pop_idle(self) -> Any:
        return self._idle.pop() if self.has_free() else None

    def push(self, actor: Any) -> None:
        if actor in self._idle or any(actor == busy for _, busy in self._busy.values()):
            raise ValueError("this actor is in the pool already")
        self._return(actor)
