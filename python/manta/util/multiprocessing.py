"""multiprocessing.Pool on Manta: a drop-in for the standard one, without its pickling limits."""
from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .. import _core
from .._runtime import auto_init, cluster_resources, remote, wait
from ..exceptions import GetTimeoutError


class TimeoutError(GetTimeoutError, multiprocessing.TimeoutError):
    """The result was not there in time."""



_initialized_in: set[str] = set()  # pools whose initializer ran in this process


def _run(pool: str, initializer: Any, initargs: Any, function: Callable[..., Any], kwargs: dict[str, Any],
         chunk: list[tuple[Any, ...]]) -> list[Any]:
    if initializer is not None and pool not in _initialized_in:
        _initialized_in.add(pool)
        initializer(*initargs)
    return [function(*args, **kwargs) for args in chunk]


def _in_time(refs: Any, timeout: float | None) -> Any:
    try:
        return _core.get(refs, timeout=timeout)
    except GetTimeoutError as problem:
        if type(problem) is not GetTimeoutError:
            raise  # of the user's code
        raise TimeoutError(str(problem)) from None


class IMapIterator:
    """Of imap and imap_unordered. An item that raised does not end it."""

    def __init__(self, refs: list[Any], ordered: bool) -> None:
        self._refs = refs
        self._ordered = ordered
        self._values: list[Any] = []

    def __iter__(self) -> IMapIterator:
        return self

    def __next__(self) -> Any:
        return self.next()

    def next(self, timeout: float | None = None) -> Any:
        if not self._values:
            if not self._refs:
                raise StopIteration
            ready = wait(self._refs[:1] if self._ordered else self._refs, timeout=timeout)[0]
            if not ready:
                raise TimeoutError(f"no result was there after {timeout} s: call next again")
            self._refs.remove(ready[0])
            self._values = list(_core.get(ready[0]))
        return self._values.pop(0)


class AsyncResult:
    """Of apply_async and map_async."""

    def __init__(self, refs: list[Any], single: bool, callback: Any, error_callback: Any) -> None:
        self._refs = refs
        self._single = single
        if callback is not None or error_callback is not None:
            threading.Thread(target=self._tell, args=(callback, error_callback), daemon=True).start()

    def _tell(self, callback: Any, error_callback: Any) -> None:
        try:
            value = self.get()
        except Exception as problem:
            if error_callback is not None:
                error_callback(problem)
        else:
            if callback is not None:
                callback(value)

    def get(self, timeout: float | None = None) -> Any:
        values = [item for chunk in _in_time(self._refs, timeout) for item in chunk]
        return values[0] if self._single else values

    def wait(self, timeout: float | None = None) -> None:
        if self._refs:
            wait(self._refs, num_returns=len(self._refs), timeout=timeout)

    def ready(self) -> bool:
        return all(ref.is_ready() for ref in self._refs)

    def successful(self) -> bool:
        if not self.ready():
            raise ValueError("the result is not ready")
        try:
            self.get()
        except Exception:
            return False
        return True


class Pool:
    """As multiprocessing.Pool; `processes` bounds the chunks, the cluster's CPUs what runs at a time."""

    def __init__(self, processes: int | None = None, initializer: Callable[..., Any] | None = None,
                 initargs: Iterable[Any] = (), maxtasksperchild: int | None = None, context: Any = None,
                 ray_remote_args: dict[str, Any] | None = None) -> None:
        if maxtasksperchild is not None and maxtasksperchild < 1:
            raise ValueError("maxtasksperchild must be 1 or more")
        if processes is not None and processes < 1:
            raise ValueError("processes must be 1 or more")
        auto_init()
        self._processes = processes or int(cluster_resources().get("CPU", os.cpu_count() or 1))
        self._initializer = initializer
        self._initargs = tuple(initargs)
        self._id = os.urandom(8).hex()
        options = dict(ray_remote_args or {})
        if maxtasksperchild is not None:
            options["max_calls"] = maxtasksperchild
        self._task = remote(**options)(_run) if options else remote(_run)
        self._open = True
        self._refs: list[Any] = []

    def _submit(self, function: Callable[..., Any], chunk: list[tuple[Any, ...]], kwargs: dict[str, Any]) -> Any:
        if not self._open:
            raise ValueError("Pool not running")
        ref = self._task.remote(self._id, self._initializer, self._initargs, function, kwargs, chunk)
        self._refs.append(ref)
        if len(self._refs) > 1000:
            self._refs = [one for one in self._refs if not one.is_ready()]
        return ref

    def _chunks(self, items: Iterable[tuple[Any, ...]], chunksize: int | None) -> Iterator[list[tuple[Any, ...]]]:
        values = list(items)
        size = chunksize or max(1, -(-len(values) // (self._processes * 4)))
        for at in range(0, len(values), size):
            yield values[at:at + size]

    def apply(self, func: Callable[..., Any], args: Iterable[Any] = (), kwds: dict[str, Any] | None = None) -> Any:
        return self.apply_async(func, args, kwds).get()

    def apply_async(self, func: Callable[..., Any], args: Iterable[Any] = (), kwds: dict[str, Any] | None = None,
                    callback: Any = None, error_callback: Any = None) -> AsyncResult:
        return AsyncResult([self._submit(func, [tuple(args)], kwds or {})], True, callback, error_callback)

    def map(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None = None) -> list[Any]:
        return self.map_async(func, iterable, chunksize).get()  # type: ignore[no-any-return]

    def map_async(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None = None,
                  callback: Any = None, error_callback: Any = None) -> AsyncResult:
        return self.starmap_async(func, ((item,) for item in iterable), chunksize, callback, error_callback)

    def starmap(self, func: Callable[..., Any], iterable: Iterable[Iterable[Any]],
                chunksize: int | None = None) -> list[Any]:
        return self.starmap_async(func, iterable, chunksize).get()  # type: ignore[no-any-return]

    def starmap_async(self, func: Callable[..., Any], iterable: Iterable[Iterable[Any]], chunksize: int | None = None,
                      callback: Any = None, error_callback: Any = None) -> AsyncResult:
        refs = [self._submit(func, chunk, {}) for chunk in self._chunks((tuple(args) for args in iterable), chunksize)]
        return AsyncResult(refs, False, callback, error_callback)

    def imap(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int = 1) -> IMapIterator:
        return self._imap(func, iterable, chunksize, True)

    def imap_unordered(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int = 1) -> IMapIterator:
        return self._imap(func, iterable, chunksize, False)

    def _imap(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int, ordered: bool) -> IMapIterator:
        chunks = self._chunks(((item,) for item in iterable), chunksize)
        return IMapIterator([self._submit(func, chunk, {}) for chunk in chunks], ordered)

    def close(self) -> None:
        self._open = False

    def terminate(self) -> None:
        self._open = False
        for ref in self._refs:
            if not ref.is_ready():
                _core.cancel(ref, True, True)
        self._refs.clear()

    def join(self) -> None:
        if self._open:
            raise ValueError("Pool is still running")
        if self._refs:
            wait(list(set(self._refs)), num_returns=len(set(self._refs)))

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.terminate()
