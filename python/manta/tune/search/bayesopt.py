"""BayesOptSearch, where Ray has it."""
from ._packages import BayesOptSearch

__all__ = ["BayesOptSearch"]
