"""Helpers on top of the core API."""
from .._serialize import deregister_serializer, register_serializer

__all__ = ["deregister_serializer", "register_serializer"]
