"""Ray's place for this name."""
from ._function import RemoteFunction

__all__ = ["RemoteFunction"]
