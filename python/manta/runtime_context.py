"""Ray's place for these names."""
from ._runtime import RuntimeContext, get_runtime_context

__all__ = ["RuntimeContext", "get_runtime_context"]
