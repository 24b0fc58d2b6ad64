"""HyperOptSearch, where Ray has it."""
from ._packages import HyperOptSearch

__all__ = ["HyperOptSearch"]
