"""Checkpoint: a folder of files, under Ray's names."""
from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from typing import Any

__all__ = ["Checkpoint"]

METADATA = ".metadata.json"


class Checkpoint:
    """Names a folder that holds the state of a trial."""

    def __init__(self, path: str | os.PathLike[str], filesystem: Any = None) -> None:
        if filesystem is not None and not hasattr(filesystem, "normalize_path"):
            raise TypeError(f"Checkpoint(filesystem={filesystem!r}): it must be a pyarrow.fs.FileSystem")
        self.path = os.path.abspath(os.path.expanduser(os.fspath(path)))
        self._filesystem = filesystem

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Checkpoint:
        if not os.path.isdir(path):
            raise ValueError(f"Checkpoint.from_directory({os.fspath(path)!r}): it is not a folder")
        return cls(path)

    @property
    def filesystem(self) -> Any:
        """pyarrow's view of the storage, made when it is asked for."""
        if self._filesystem is None:
            import pyarrow.fs

            self._filesystem = pyarrow.fs.LocalFileSystem()
        return self._filesystem

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copies the files; into a new temporary folder when none is named."""
        import tempfile
        import uuid

        new = os.path.join(tempfile.gettempdir(), f"checkpoint_{uuid.uuid4().hex}")
        target = new if path is None else os.fspath(path)
        shutil.copytree(self.path, target, dirs_exist_ok=True)
        return target

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """The folder itself: it is read in place, so it must not be written to."""
        if not os.path.isdir(self.path):
            raise FileNotFoundError(f"checkpoint {self.path} does not exist on this machine; if another node wrote it, "
                                    "let storage_path name a folder that all nodes share")
        yield self.path

    def get_metadata(self) -> dict[str, Any]:
        try:
            with open(os.path.join(self.path, METADATA)) as file:
                return dict(json.load(file))
        except FileNotFoundError:
            return {}

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        with open(os.path.join(self.path, METADATA), "w") as file:
            json.dump(metadata, file)

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        self.set_metadata({**self.get_metadata(), **metadata})

    def __repr__(self) -> str:
        return f"Checkpoint(filesystem=local, path={self.path})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __reduce__(self) -> Any:
        return Checkpoint, (self.path,)


def persist(source: str, target: str) -> None:
    """Copies a checkpoint under a temporary name, syncs it and renames it: a partial one never has its final name."""
    partial = f"{target}.partial-{os.getpid()}"
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(source, partial)
    settle(partial, target)


def settle(partial: str, target: str) -> None:
    """Syncs a folder and gives it its final name."""
    for folder, _, files in os.walk(partial):
        for name in files:
            _sync(os.path.join(folder, name))
        _sync(folder)
    if os.path.isdir(target):  # of a trial that was restored from before it
        shutil.rmtree(target)
    os.rename(partial, target)
    _sync(os.path.dirname(target))


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
