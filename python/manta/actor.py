"""Ray's place for these names."""
from ._actor import ActorClass, ActorHandle, ActorMethod, exit_actor

__all__ = ["ActorClass", "ActorHandle", "ActorMethod", "exit_actor"]
