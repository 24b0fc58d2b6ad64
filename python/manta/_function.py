"""Remote functions."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from . import _core, _kinds, _options, _publish, _surroundings

R = TypeVar("R")


def _name_of(function: Any) -> str:
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return str(name.rpartition("<locals>.")[2])


class RemoteFunction(Generic[R]):
    """What ``@manta.remote`` makes of a function. ``remote`` is a C++ callable: see python/src/calls.cc."""

    def __init__(self, function: Callable[..., R] | None, options: dict[str, Any], *, name: str = "",
                 ref: _core.ObjectRef[Any] | None = None, generator: bool | None = None) -> None:
        if _kinds.is_coroutine(function):
            raise TypeError(f"'async def {_name_of(function)}' cannot be a remote function: use an actor with it as a "
                            "method, or asyncio.run inside a plain function")
        self._function = function
        self._options = options
        self._name = name or _name_of(function)
        self._ref = ref  # of the published function, if it came from elsewhere
        self._ref_session = _core.session() if ref is not None else 0
        self._generator = _kinds.is_generator(function) if generator is None else generator
        self._streams = options.get("num_returns") == "streaming" or ("num_returns" not in options and self._generator)
        if function is not None:
            functools.update_wrapper(self, function)
        self.remote: Callable[..., _core.ObjectRef[R]] = (
            self._stream if self._streams else _core.new_call(self._prepare))  # type: ignore[assignment]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"remote function {self._name!r} cannot be called like this: write {self._name}.remote(...)")

    def __repr__(self) -> str:
        return f"RemoteFunction({self._name})"

    def options(self, **options: Any) -> RemoteFunction[R]:
        """The same function with other options, for ``f.options(num_cpus=2).remote(…)``."""
        checked = _options.check(options, _options.TASK, f"remote function {self._name}")
        return RemoteFunction(self._function, {**self._options, **checked}, name=self._name, ref=self._ref,
                              generator=self._generator)

    def _published(self, group: tuple[str, bool] | None = None,
                   env: dict[str, str] | None = None) -> _core.ObjectRef[Any]:
        details: dict[str, Any] = {}
        if group is not None:
            details["group"] = group
        retry = self._options.get("retry_exceptions")
        if isinstance(retry, (list, tuple)):
            details["retry"] = tuple(retry)
        if self._options.get("num_returns") == "dynamic":
            details["dynamic"] = True
        # A library keeps the GPU's memory until its process ends, so a GPU task has a worker of its own by default.
        max_calls = self._options.get("max_calls", 1 if self._options.get("num_gpus") else 0)
        if max_calls:
            details["max_calls"] = max_calls
        if env:
            details["env"] = env
        if self._ref is not None and self._ref_session == _core.session():
            if not details:
                return self._ref
            if self._function is None:
                self._function = _core.get(self._ref)[0]
        return _publish.publish(self._function, details)

    def _prepare(self, call: Any) -> None:
        from . import _runtime

        _runtime.auto_init()
        options = _surroundings.inherited(self._options)
        plan = _options.intern(options.get("name", self._name), options, 1, options.get("max_retries", 3))
        returns = options.get("num_returns", 1)
        published = self._published(_surroundings.of_options(options), _surroundings.environment(options))
        call.set_function(published, plan, 1 if returns == "dynamic" else returns,
                          options.get("retry_exceptions") is True)

    def _stream(self, *args: Any, **kwargs: Any) -> Any:
        from . import _runtime, _stream

        _runtime.auto_init()
        return _stream.start_task(self, args, kwargs)

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("graphs (bind) are not supported yet: call remote and pass the ObjectRefs")

    def __reduce__(self) -> Any:
        if self._function is not None and _publish.being_published(self._function):
            return _rebuild, (self._function, self._options, self._name, None, self._generator)
        plain = {key: value for key, value in self._options.items()
                 if key not in ("retry_exceptions", "num_returns", "runtime_env", "max_calls", "num_gpus")}
        ref = RemoteFunction(self._function, plain, name=self._name, ref=self._ref,
                             generator=self._generator)._published()
        return _rebuild, (None, self._options, self._name, ref, self._generator)


def _rebuild(function: Any, options: dict[str, Any], name: str, ref: Any, generator: bool) -> RemoteFunction[Any]:
    return RemoteFunction(function, options, name=name, ref=ref, generator=generator)
