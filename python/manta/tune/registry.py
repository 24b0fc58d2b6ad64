"""Names for trainables and environments, under Ray's names."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .error import TuneError, suggestion

__all__ = ["get_trainable_cls", "is_function_trainable", "register_env", "register_trainable"]

_trainables: dict[str, Any] = {}
_environments: dict[str, Callable[..., Any]] = {}


def register_trainable(name: str, trainable: Any, warn: bool = True) -> None:
    """Tuner("name", ...) and tune.run("name", ...) run it afterwards. The code travels to every node with its trial."""
    from ._resources import check_trainable

    if not isinstance(name, str) or not name:
        raise TypeError(f"register_trainable({name!r}): the name must be text")
    check_trainable(trainable)
    _trainables[name] = trainable


def register_env(name: str, env_creator: Callable[..., Any]) -> None:
    if not callable(env_creator):
        raise TypeError(f"register_env({name!r}, {env_creator!r}): the second argument must be a function of the "
                        "environment's configuration")
    _environments[name] = env_creator


def get_trainable_cls(name: str) -> Any:
    if name not in _trainables:
        raise TuneError(f"no trainable is registered under the name {name!r}.{suggestion(name, _trainables)} Call "
                        "tune.register_trainable first")
    return _trainables[name]


def get_env_creator(name: str) -> Callable[..., Any]:
    if name not in _environments:
        raise ValueError(f"no environment is registered under the name {name!r}.{suggestion(name, _environments)}")
    return _environments[name]


def is_function_trainable(trainable: Any) -> bool:
    return callable(trainable) and not isinstance(trainable, type)
