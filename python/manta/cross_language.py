"""C++ functions and actors of a shared library, called by name.

    library = manta.cross_language.load_library("build/libshapes.so")
    ref = library.Area.remote(2.0, 3.0)              # MANTA_REMOTE(Area)
    counter = library.Counter.remote(10)             # MANTA_REMOTE_CLASS(Counter, MakeCounter, &Counter::Add)
    manta.get(counter.Add.remote(5))

The library is loaded here and, by its path, in each worker that runs something of it. Arguments and results are those
that include/manta/plain.h names; ObjectRefs are waited for, or passed as they are where the function takes a Ref.
"""
from __future__ import annotations

import functools
import os
from typing import Any

from . import _core, _options
from ._actor import ActorHandle

__all__ = ["CppActorClass", "CppActorHandle", "CppFunction", "CppLibrary", "cpp_actor_class", "cpp_function",
           "load_library"]

_TASK = {"num_cpus", "num_gpus", "memory", "resources", "name", "num_returns", "max_retries", "scheduling_strategy",
         "label_selector"}
_ACTOR = {"num_cpus", "num_gpus", "memory", "resources", "name", "namespace", "lifetime", "get_if_exists",
          "max_restarts", "max_task_retries", "max_concurrency", "scheduling_strategy", "label_selector",
          "checkpoint_every", "replay"}
_METHOD = {"num_returns", "name", "read_only"}


class _Code:
    """What a library says of a name."""

    def __init__(self, library: str, row: tuple[str, int, int, int, bool, bool]) -> None:
        self.library = library
        self.name, self.parameters, self.returns, self.refs, self.creates, self.read_only = row

    @property
    def text(self) -> str:
        return f"{self.library}\n{self.name}"

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if kwargs:
            raise TypeError(f"{self.name} is C++, and takes no argument by keyword ({next(iter(kwargs))!r})")
        if len(args) != self.parameters:
            raise TypeError(f"{self.name} takes {self.parameters} arguments, not {len(args)}")

    def num_returns(self, options: dict[str, Any]) -> int:
        returns = options.get("num_returns", 1)
        if returns not in (1, self.returns):
            raise ValueError(f"num_returns={returns!r}: {self.name} returns 1 value" +
                             (f", or {self.returns}" if self.returns > 1 else ""))
        return int(returns)


class CppFunction:
    """A C++ function: ``function.remote(…)`` gives an ObjectRef."""

    def __init__(self, code: _Code, options: dict[str, Any]) -> None:
        self._code = code
        self._options = options
        self._returns = code.num_returns(options)
        self._call = _core.new_call(self._prepare)

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        self._code.check(args, kwargs)
        return self._call(*args)

    def options(self, **options: Any) -> CppFunction:
        checked = _options.check(options, _TASK, f"C++ function {self._code.name}")
        return CppFunction(self._code, {**self._options, **checked})

    def _prepare(self, call: Any) -> None:
        from . import _runtime

        _runtime.auto_init()
        options = self._options
        plan = _options.intern(options.get("name", self._code.name), options, 1, options.get("max_retries", 3))
        call.set_native(None, self._code.text, plan, self._returns, self._code.refs, False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"write {self._code.name}.remote(...): it runs in a worker")

    def __repr__(self) -> str:
        return f"CppFunction({self._code.name})"

    def __reduce__(self) -> Any:
        return _find, (self._code.library, self._code.name, self._options)


class CppMethod:
    """``handle.Method``."""

    def __init__(self, actor: _core.ActorRef, code: _Code, options: dict[str, Any]) -> None:
        self._actor = actor
        self._code = code
        self._options = options
        plan = _options.intern(options.get("name", code.name), {}, 0, 0)
        self._call = _core.new_call(lambda _: None)
        self._call.set_native(actor, code.text, plan, code.num_returns(options), code.refs,
                              options.get("read_only", code.read_only))

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        self._code.check(args, kwargs)
        return self._call(*args)

    def options(self, **options: Any) -> CppMethod:
        checked = _options.check(options, _METHOD, f"method {self._code.name}")
        return CppMethod(self._actor, self._code, {**self._options, **checked})


class CppActorHandle(ActorHandle[Any]):
    """Calls a C++ actor. Can be passed to Python tasks and actors."""

    def __init__(self, actor: _core.ActorRef, library: str, name: str) -> None:
        super().__init__(actor, name, {})
        self._library = library

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        code = _library(self._library).get(f"{self._class_name}.{name}")
        if code is None:
            raise AttributeError(f"C++ class {self._class_name} of {self._library} names no method {name!r} "
                                 "in its MANTA_REMOTE_CLASS")
        made = self.__dict__[name] = CppMethod(self._actor, code, {})
        return made

    def __reduce__(self) -> Any:
        return CppActorHandle, (self._actor, self._library, self._class_name)


class CppActorClass:
    """A C++ class: ``cls.remote(…)`` makes an actor."""

    def __init__(self, code: _Code, options: dict[str, Any]) -> None:
        self._code = code
        self._options = options

    def remote(self, *args: Any, **kwargs: Any) -> CppActorHandle:
        from . import _runtime

        self._code.check(args, kwargs)
        _runtime.auto_init()
        actor = _options.create_actor(self._code.text, self._code.name, self._options,
                                      self._options.get("max_concurrency", 1), args, {})
        return CppActorHandle(actor, self._code.library, self._code.name)

    def options(self, **options: Any) -> CppActorClass:
        checked = _options.check(options, _ACTOR, f"C++ class {self._code.name}")
        return CppActorClass(self._code, {**self._options, **checked})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"write {self._code.name}.remote(...): it lives in a worker")

    def __repr__(self) -> str:
        return f"CppActorClass({self._code.name})"

    def __reduce__(self) -> Any:
        return _find, (self._code.library, self._code.name, self._options)


class CppLibrary:
    """A loaded library; its functions and classes are its attributes."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _find(self._path, name, {})

    def __dir__(self) -> list[str]:
        return sorted(name for name in _library(self._path) if "." not in name)

    def __repr__(self) -> str:
        return f"CppLibrary({self._path!r})"

    def __reduce__(self) -> Any:
        return CppLibrary, (self._path,)


@functools.cache
def _library(path: str) -> dict[str, _Code]:
    return {row[0]: _Code(path, row) for row in _core.load_library(path)}


_loaded: list[str] = []  # in the order of load_library


def _find(path: str, name: str, options: dict[str, Any]) -> Any:
    code = _library(path).get(name)
    if code is None:
        known = ", ".join(sorted(one for one in _library(path) if "." not in one)) or "none"
        raise AttributeError(f"{path} has no {name!r} for other languages; there are: {known}. Give it one with "
                             "MANTA_REMOTE or MANTA_REMOTE_CLASS (only plain types can cross: see manta/plain.h)")
    return CppActorClass(code, options) if code.creates else CppFunction(code, options)


def load_library(path: str | os.PathLike[str]) -> CppLibrary:
    """Loads a shared library of C++ functions and classes, here and wherever they are called."""
    full = os.path.abspath(os.fspath(path))
    _library(full)
    if full not in _loaded:
        _loaded.append(full)
    return CppLibrary(full)


def _by_name(name: str, library: str | os.PathLike[str] | None) -> Any:
    if library is not None:
        return getattr(load_library(library), name)
    for path in _loaded:
        if name in _library(path):
            return _find(path, name, {})
    raise ValueError(f"no library that was loaded has {name!r}: call load_library, or say library=...")


def cpp_function(function_name: str, library: str | os.PathLike[str] | None = None) -> CppFunction:
    """The C++ function of that name, of the library or of all that were loaded."""
    found = _by_name(function_name, library)
    if not isinstance(found, CppFunction):
        raise ValueError(f"{function_name!r} is a class: use cpp_actor_class")
    return found


def cpp_actor_class(class_name: str, library: str | os.PathLike[str] | None = None) -> CppActorClass:
    """The C++ class of that name, of the library or of all that were loaded."""
    found = _by_name(class_name, library)
    if not isinstance(found, CppActorClass):
        raise ValueError(f"{class_name!r} is a function: use cpp_function")
    return found
