"""AxSearch, where Ray has it."""
from ._packages import AxSearch

__all__ = ["AxSearch"]
