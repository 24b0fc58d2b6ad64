"""Turns a user's nested space into the flat one that native searchers read, and their answers into configurations."""
from __future__ import annotations

import types
from typing import Any

from .sample import Categorical, Domain, Function, When

Path = tuple[Any, ...]


class _Unresolved(Exception):
    """A function read a key that another function has not computed yet."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class _Constant(Domain):
    def __init__(self, value: Any) -> None:
        self.value = value

    def described(self) -> tuple[Any, ...]:
        return ("constant", 0.0, 0.0, 0.0, False, [self.value])


class Spec(dict):  # type: ignore[type-arg]
    """A dictionary whose keys are attributes, too, as functions of sample_from read it."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            known = ", ".join(map(str, self))
            raise AttributeError(f"the configuration has no key {name!r}; it has: {known}") from None

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)
        if isinstance(value, _Pending):
            raise _Unresolved(value.path)
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key] if key in self else default


class _Pending:
    def __init__(self, path: str) -> None:
        self.path = path


def text_of(path: Path) -> str:
    return "/".join(str(part) for part in path)


class Space:
    """A checked space.

    `parameters` is what a native searcher needs: [(path, kind, low, high, q, log, values, parent, parent_values)].
    Values that are not plain are sent as their index in `values`.
    """

    def __init__(self, param_space: Any, mutated: tuple[str, ...] = ()) -> None:
        """`mutated`: paths of constants that a scheduler changes, so that searchers and schedulers must know them."""
        if not isinstance(param_space, dict):
            raise ValueError(f"param_space must be a dictionary, not {type(param_space).__name__}: {param_space!r}")
        self.source = param_space
        self.parameters: list[tuple[Any, ...]] = []
        self.functions: list[tuple[Path, Function, tuple[Path, list[Any]] | None]] = []
        self._paths: dict[str, Path] = {}
        self._objects: dict[str, list[Any]] = {}
        self._domains: dict[str, Domain] = {}
        self.constants: dict[str, Any] = _copy_tree(param_space)
        self._mutated = set(mutated)
        self._walk(param_space, (), None)
        self.has_grid = any(row[1] == "grid" for row in self.parameters)

    def _walk(self, node: Any, path: Path, condition: tuple[str, list[Any]] | None) -> None:
        if isinstance(node, When):
            if condition is not None and condition[0] != node.key:
                raise ValueError(f"{text_of(path)}: a condition inside another one is not supported; both name a key "
                                 f"({condition[0]} and {node.key}): join them into one choice")
            _remove(self.constants, path)
            self._walk(node.space, path, (node.key, node.values))
        elif isinstance(node, Function) or (isinstance(node, types.FunctionType) and node.__name__ == "<lambda>"):
            function = node if isinstance(node, Function) else Function(node)
            where = None if condition is None else (tuple(condition[0].split("/")), condition[1])
            self.functions.append((path, function, where))
            _remove(self.constants, path)
        elif isinstance(node, Domain):
            self._add(node, path, condition)
        elif isinstance(node, dict) and set(node) == {"grid_search"}:
            values = node["grid_search"]
            if not isinstance(values, (list, tuple)) or not values:
                raise ValueError(f"{text_of(path)}: grid_search needs a list with at least one value, not {values!r}")
            self._add(Categorical(values, grid=True), path, condition)
        elif isinstance(node, dict):
            for key, child in node.items():
                self._walk(child, (*path, key), condition)
        elif isinstance(node, (list, tuple)) and _varies(node):
            for number, child in enumerate(node):
                self._walk(child, (*path, number), condition)
        elif condition is not None:  # a constant that exists under a condition only
            self._add(Categorical([node]), path, condition)
        elif text_of(path) in self._mutated and _plain(node):
            self._add(_Constant(node), path, None)

    def _add(self, domain: Domain, path: Path, condition: tuple[str, list[Any]] | None) -> None:
        name = text_of(path)
        if name in self._paths:
            raise ValueError(f"{name}: two keys of the space have this path; rename one of them")
        kind, low, high, q, log, values = domain.described()
        if values is not None:
            if not values:
                raise ValueError(f"{name}: choice needs a list with at least one value")
            if not all(_plain(value) for value in values) or len({type(value) for value in values}) > 1:
                self._objects[name] = values
                values = list(range(len(values)))
        parent: str = ""
        parent_values: list[Any] = []
        if condition is not None:
            parent, parent_values = condition
            if parent in self._objects:
                known = self._objects[parent]
                for value in parent_values:
                    if value not in known:
                        raise ValueError(f"{name}: the condition names {parent}={value!r}, but {parent} has the values "
                                         f"{known!r}")
                parent_values = [known.index(value) for value in parent_values]
        self._paths[name] = path
        self._domains[name] = domain
        _remove(self.constants, path)
        self.parameters.append((name, kind, low, high, q, log, values, parent, list(parent_values)))

    def encode(self, config: dict[str, Any]) -> dict[str, Any]:
        """A user's point as the native searcher's configuration; keys that are not parameters are left out."""
        out: dict[str, Any] = {}
        for name, path in self._paths.items():
            value: Any = config
            if name in config:  # written flat
                value = config[name]
            else:
                try:
                    for part in path:
                        value = value[part]
                except (KeyError, IndexError, TypeError):
                    continue
            if name in self._objects:
                if value not in self._objects[name]:
                    raise ValueError(f"{name}={value!r} is not one of {self._objects[name]!r}")
                value = self._objects[name].index(value)
            elif self._domains[name].described()[0] in ("float", "normal"):
                value = float(value)
            out[name] = value
        return out

    def decode(self, answer: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """A native searcher's answer as (configuration, the values that vary by their path)."""
        config = _copy_tree(self.constants)
        varying: dict[str, Any] = {}
        for name, value in answer.items():
            if name not in self._paths:  # a key that the scheduler added
                _set(config, tuple(name.split("/")), value)
                varying[name] = value
                continue
            if name in self._objects:
                value = self._objects[name][value]
            _set(config, self._paths[name], value)
            varying[name] = value
        return self.resolve(config, varying)

    def resolve(self, config: dict[str, Any], varying: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Computes the functions, each after the keys that it reads."""
        if not self.functions:
            return config, varying
        waiting: list[tuple[Path, Function]] = []
        for path, function, condition in self.functions:
            if condition is not None and _get(config, condition[0]) not in condition[1]:
                continue
            waiting.append((path, function))
            _set(config, path, _Pending(text_of(path)))
        while waiting:
            again: list[tuple[Path, Function]] = []
            blocked: dict[str, str] = {}
            for path, function in waiting:
                spec = Spec(config=_specs(config))
                try:
                    value = function.call(spec)
                except _Unresolved as missing:
                    again.append((path, function))
                    blocked[text_of(path)] = missing.key
                    continue
                _set(config, path, value)
                varying[text_of(path)] = value
            if len(again) == len(waiting):
                chain = ", ".join(f"{key} needs {needs}" for key, needs in blocked.items())
                raise ValueError(f"the functions of the space need each other's values: {chain}. Remove the cycle.")
            waiting = again
        return config, varying


def _plain(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str)) and type(value) in (bool, int, float, str)


def _varies(node: Any) -> bool:
    if isinstance(node, (Domain, When)) or (isinstance(node, types.FunctionType) and node.__name__ == "<lambda>"):
        return True
    if isinstance(node, dict):
        return set(node) == {"grid_search"} or any(_varies(child) for child in node.values())
    return isinstance(node, (list, tuple)) and any(_varies(child) for child in node)


def _copy_tree(node: Any) -> Any:
    """Dictionaries are copied, and lists that hold something that varies; the user's objects are not."""
    if type(node) is dict:
        return {key: _copy_tree(value) for key, value in node.items()}
    if isinstance(node, (list, tuple)) and _varies(node):
        return [_copy_tree(value) for value in node]
    if type(node) is list:
        return list(node)
    return node


def _specs(node: Any) -> Any:
    if type(node) is dict:
        return Spec({key: _specs(value) for key, value in node.items()})
    return node


def _get(config: Any, path: Path) -> Any:
    for part in path:
        try:
            config = config[part]
        except (KeyError, IndexError, TypeError):
            return None
    return config


def _set(config: Any, path: Path, value: Any) -> None:
    for part, following in zip(path[:-1], path[1:], strict=True):
        if isinstance(config, dict) and part not in config:
            config[part] = [] if isinstance(following, int) and not isinstance(following, bool) else {}
        config = config[part]
    if isinstance(config, list):
        while len(config) <= path[-1]:
            config.append(None)
    config[path[-1]] = value


def _remove(config: Any, path: Path) -> None:
    """Leaves the key out of a dictionary; in a list its place stays."""
    if not path:
        return
    config = _get(config, path[:-1])
    if isinstance(config, list):
        config[path[-1]] = None
    elif isinstance(config, dict):
        config.pop(path[-1], None)
