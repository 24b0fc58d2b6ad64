"""NevergradSearch, where Ray has it."""
from ._packages import NevergradSearch

__all__ = ["NevergradSearch"]
