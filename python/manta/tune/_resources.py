"""The resources of a trial, and wrappers of trainables, under Ray's names."""
from __future__ import annotations

import functools
import inspect
from typing import Any

__all__ = ["PlacementGroupFactory", "with_parameters", "with_resources"]

_STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


class PlacementGroupFactory:
    """Bundles of resources. The first one belongs to the trainable and may be empty."""

    def __init__(self, bundles: list[dict[str, float]], strategy: str = "PACK", *args: Any, **kwargs: Any) -> None:
        if not bundles:
            raise ValueError("PlacementGroupFactory(bundles=[]): it needs at least one bundle, which may be empty")
        if strategy not in _STRATEGIES:
            raise ValueError(f"PlacementGroupFactory(strategy={strategy!r}): it must be one of "
                             f"{', '.join(_STRATEGIES)}")
        self.bundles = [{key: float(value) for key, value in bundle.items() if value} for bundle in bundles]
        for bundle in self.bundles:
            for key, value in bundle.items():
                if value < 0:
                    raise ValueError(f"PlacementGroupFactory: {key}={value}: an amount must be 0 or more")
        self.head_bundle_is_empty = not self.bundles[0]
        if self.head_bundle_is_empty and len(self.bundles) == 1:
            raise ValueError("PlacementGroupFactory: the only bundle is empty; give it an amount, or add a bundle")
        self.strategy = strategy

    @property
    def required_resources(self) -> dict[str, float]:
        total: dict[str, float] = {}
        for bundle in self.bundles:
            for key, value in bundle.items():
                total[key] = total.get(key, 0.0) + value
        return total

    @property
    def head_cpus(self) -> float:
        return self.bundles[0].get("CPU", 0.0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroupFactory) and (
            (other.bundles, other.strategy) == (self.bundles, self.strategy))

    def __hash__(self) -> int:
        return hash(repr(self))

    def __call__(self) -> Any:
        from ..util.placement_group import placement_group

        return placement_group([bundle for bundle in self.bundles if bundle], self.strategy)

    def __repr__(self) -> str:
        return f"PlacementGroupFactory(bundles={self.bundles!r}, strategy={self.strategy!r})"


def factory_of(resources: Any, where: str) -> PlacementGroupFactory:
    """A dictionary as {"cpu": 2, "gpu": 1, "custom": 1} or a PlacementGroupFactory."""
    if isinstance(resources, PlacementGroupFactory):
        return resources
    if resources is None:
        return PlacementGroupFactory([{"CPU": 1}])
    if not isinstance(resources, dict):
        raise ValueError(f"{where}: resources must be a dictionary, a PlacementGroupFactory or a function of the "
                         f"configuration, not {resources!r}")
    amounts: dict[str, float] = {}
    for key, value in resources.items():
        if key == "custom_resources":
            amounts.update(value)
        elif key in ("extra_cpu", "extra_gpu", "extra_memory", "extra_custom_resources"):
            raise ValueError(f"{where}: {key} was removed by Ray: use a PlacementGroupFactory with several bundles")
        else:
            amounts[{"cpu": "CPU", "gpu": "GPU"}.get(key, key)] = value
    for key, value in amounts.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
            raise ValueError(f"{where}: {key}={value!r}: an amount must be a number, 0 or more")
    amounts.setdefault("CPU", 1 if not amounts.get("GPU") else 0)
    if not any(amounts.values()):
        amounts["CPU"] = 0.0001  # nothing at all: the smallest share, so that a bundle exists
    return PlacementGroupFactory([amounts])


def with_resources(trainable: Any, resources: Any) -> Any:
    """The trainable with the resources that each of its trials needs."""
    check_trainable(trainable)
    if not callable(resources) or isinstance(resources, PlacementGroupFactory):
        factory_of(resources, "with_resources")
    if isinstance(trainable, type):
        made = type(trainable.__name__, (trainable,), {"__module__": trainable.__module__,
                                                       "__doc__": trainable.__doc__})
        made.__qualname__ = trainable.__qualname__
        made._manta_resources = resources  # type: ignore[attr-defined]
        return made

    if isinstance(trainable, (functools.partial,)) or not hasattr(trainable, "__dict__"):
        inner = trainable

        def wrapped(config: dict[str, Any]) -> Any:
            return inner(config)

        wrapped.__name__ = getattr(getattr(inner, "func", inner), "__name__", "trainable")
    else:
        wrapped = _Function(trainable)
    wrapped._manta_resources = resources  # type: ignore[attr-defined]
    return wrapped


class _Function:
    """A function with resources or parameters; the function itself is not changed."""

    def __init__(self, function: Any, parameters: dict[str, Any] | None = None) -> None:
        self._function = function
        self._parameters = parameters or {}
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        resources = getattr(function, "_manta_resources", None)
        if resources is not None:
            self._manta_resources = resources

    def __call__(self, config: dict[str, Any]) -> Any:
        import manta

        values = {key: manta.get(ref) for key, ref in self._parameters.items()}
        return self._function(config, **values)


def with_parameters(trainable: Any, **kwargs: Any) -> Any:
    """The trainable with large objects: they are put into the store once and read in place by every trial."""
    import manta

    check_trainable(trainable, takes=tuple(kwargs))
    if not manta.is_initialized():
        manta.init()
    refs = {key: manta.put(value) for key, value in kwargs.items()}
    if isinstance(trainable, type):
        base: Any = trainable

        def setup(self: Any, config: dict[str, Any]) -> None:
            base.setup(self, config, **{key: manta.get(ref) for key, ref in refs.items()})

        made = type(base.__name__, (base,), {"setup": setup, "__module__": base.__module__})
        made.__qualname__ = base.__qualname__
        return made
    return _Function(trainable, refs)


def check_trainable(trainable: Any, takes: tuple[str, ...] = ()) -> None:
    """Is it a function of a configuration, or a Trainable class?"""
    from .trainable import Trainable

    if isinstance(trainable, type):
        if not issubclass(trainable, Trainable):
            raise ValueError(f"class {trainable.__qualname__} is not a tune.Trainable: let it inherit from it, or pass "
                             "a function of the configuration")
        return
    if not callable(trainable):
        raise ValueError(f"the trainable must be a function of the configuration, a Trainable class or a registered "
                         f"name, not {trainable!r}")
    try:
        signature = inspect.signature(trainable)
    except (TypeError, ValueError):
        return
    try:
        signature.bind({}, **dict.fromkeys(takes))
    except TypeError as error:
        name = getattr(trainable, "__name__", repr(trainable))
        wanted = ", ".join(("config", *takes))
        raise ValueError(f"function {name}{signature} cannot be called as {name}({wanted}): {error}. A trainable takes "
                         "one argument, the configuration") from None


def resources_of(trainable: Any, config: dict[str, Any]) -> PlacementGroupFactory:
    """What a trial with this configuration needs."""
    name = getattr(trainable, "__name__", "trainable")
    resources = getattr(trainable, "_manta_resources", None)
    if resources is not None:
        if callable(resources) and not isinstance(resources, PlacementGroupFactory):
            resources = resources(config)
        return factory_of(resources, f"with_resources({name})")
    if isinstance(trainable, type):
        asked = trainable.default_resource_request(config)  # type: ignore[attr-defined]
        if asked is not None:
            return factory_of(asked, f"{name}.default_resource_request")
    return factory_of(None, name)


def varies(trainable: Any) -> bool:
    """Do the resources depend on the configuration?"""
    resources = getattr(trainable, "_manta_resources", None)
    if resources is not None:
        return callable(resources) and not isinstance(resources, PlacementGroupFactory)
    from .trainable import Trainable

    return isinstance(trainable, type) and (
        trainable.default_resource_request.__func__  # type: ignore[attr-defined]
        is not Trainable.default_resource_request.__func__)  # type: ignore[attr-defined]
