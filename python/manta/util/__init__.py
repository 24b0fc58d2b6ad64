"""Helpers on top of the core API: ``manta.util.ActorPool``, ``placement_group`` and its strategies, ``queue``,
``multiprocessing``.
"""
import importlib as _importlib
from typing import Any as _Any

from .._runtime import get_node_ip_address, list_named_actors
from .._serialize import deregister_serializer, register_serializer
from .actor_pool import ActorPool
from .check_serialize import inspect_serializability
from .placement_group import (
    PlacementGroup,
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

__all__ = ["ActorPool", "PlacementGroup", "deregister_serializer", "get_current_placement_group",
           "get_node_ip_address", "get_placement_group", "inspect_serializability", "list_named_actors",
           "placement_group", "placement_group_table", "register_serializer", "remove_placement_group"]


_LATER = ("joblib", "multiprocessing", "queue", "scheduling_strategies")  # loaded when they are first used


def __getattr__(name: str) -> _Any:
    if name in _LATER:
        return _importlib.import_module(f"manta.util.{name}")
    raise AttributeError(f"module 'manta.util' has no attribute {name!r}")
