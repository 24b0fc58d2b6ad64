"""ConcurrencyLimiter, where Ray has it."""
from .searcher import ConcurrencyLimiter

__all__ = ["ConcurrencyLimiter"]
