"""Classes of ids, under Ray's names. An id is the text that the rest of the API takes and gives, with Ray's methods."""
from __future__ import annotations

import os
from typing import TypeVar

I = TypeVar("I", bound="UniqueID")  # noqa: E741


class UniqueID(str):
    """An id. It is a text, so that it compares with what get_runtime_context() gives. Made of a text or, as in Ray, of
    the id's bytes.
    """

    def __new__(cls: type[I], value: str | bytes = "") -> I:
        return str.__new__(cls, value.hex() if isinstance(value, bytes) else value)

    def hex(self) -> str:
        return str(self)

    def binary(self) -> bytes:
        try:
            return bytes.fromhex(self)
        except ValueError:  # the name of a node
            return self.encode()

    def is_nil(self) -> bool:
        return not self.strip("0")

    @classmethod
    def nil(cls: type[I]) -> I:
        return cls("")

    @classmethod
    def from_hex(cls: type[I], text: str) -> I:
        return cls(text)

    @classmethod
    def from_binary(cls: type[I], data: bytes) -> I:
        return cls(data.hex())

    @classmethod
    def from_random(cls: type[I]) -> I:
        return cls(os.urandom(16).hex())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"


class ActorID(UniqueID):
    pass


class TaskID(UniqueID):
    pass


class JobID(UniqueID):
    pass


class NodeID(UniqueID):
    pass


class WorkerID(UniqueID):
    pass


class FunctionID(UniqueID):
    pass


class PlacementGroupID(UniqueID):
    pass


class ActorClassID(UniqueID):
    pass


class ClassID(UniqueID):
    pass
