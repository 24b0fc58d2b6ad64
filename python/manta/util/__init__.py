"""Helpers on top of the core API: ``manta.util.ActorPool``, ``manta.util.queue``, ``manta.util.multiprocessing``."""
from .._serialize import deregister_serializer, register_serializer
from .actor_pool import ActorPool

__all__ = ["ActorPool", "deregister_serializer", "placement_group", "register_serializer"]


def placement_group(*_: object, **__: object) -> None:
    raise NotImplementedError("placement groups are not supported yet: they come with clusters of machines")
