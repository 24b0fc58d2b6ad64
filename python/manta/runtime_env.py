"""RuntimeEnv under Ray's name: a dictionary, as the option runtime_env takes it."""
from __future__ import annotations

from typing import Any

__all__ = ["RuntimeEnv"]


class RuntimeEnv(dict[str, Any]):
    """``RuntimeEnv(env_vars={"A": "1"})``. Fields that are None are left out."""

    def __init__(self, **fields: Any) -> None:
        super().__init__({name: value for name, value in fields.items() if value is not None})
