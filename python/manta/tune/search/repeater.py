"""Repeater, where Ray has it."""
from .searcher import Repeater

__all__ = ["Repeater"]
