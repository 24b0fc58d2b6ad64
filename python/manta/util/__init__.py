"""Helpers on top of the core API: ``manta.util.ActorPool``, ``placement_group`` and its strategies, ``queue``,
``multiprocessing``.
"""
from .._serialize import deregister_serializer, register_serializer
from .actor_pool import ActorPool
from .placement_group import (
    PlacementGroup,
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

__all__ = ["ActorPool", "PlacementGroup", "deregister_serializer", "get_current_placement_group",
           "get_placement_group", "placement_group", "placement_group_table", "register_serializer",
           "remove_placement_group"]
