"""OptunaSearch, where Ray has it."""
from ._packages import OptunaSearch

__all__ = ["OptunaSearch"]
