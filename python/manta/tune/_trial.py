"""Trial: what the driver knows about one training run, under Ray's names."""
from __future__ import annotations

import json
import os
from typing import Any

from ._checkpoint import Checkpoint

__all__ = ["Trial"]


class Trial:
    """Metadata, one-to-one with a trainable. Its states: PENDING, RUNNING, PAUSED, TERMINATED, ERROR."""

    PENDING, RUNNING, PAUSED, TERMINATED, ERROR = "PENDING", "RUNNING", "PAUSED", "TERMINATED", "ERROR"
    __slots__ = ("number", "trial_id", "trainable_name", "config", "evaluated_params", "experiment_tag", "status",
                 "_last_result", "path", "name", "checkpoints", "error_text", "placement_group_factory", "start_time",
                 "num_failures", "pid", "node_ip", "stopped_early", "runtime_metadata", "pickled_error")

    def __init__(self, number: int, trial_id: str, trainable_name: str, config: dict[str, Any],
                 varying: dict[str, Any]) -> None:
        self.number, self.trial_id, self.trainable_name = number, trial_id, trainable_name
        self.config, self.evaluated_params = config, varying
        self.experiment_tag = tag_of(number, varying)
        self.status = self.PENDING
        self._last_result: dict[str, Any] | None = None
        self.name = f"{trainable_name}_{trial_id}"
        self.path = ""
        self.checkpoints: list[tuple[str, dict[str, Any]]] = []  # (folder, the result that it belongs to)
        self.error_text = ""
        self.pickled_error = b""
        self.placement_group_factory: Any = None
        self.start_time: float | None = None
        self.num_failures = 0
        self.pid: int | None = None
        self.node_ip: str | None = None
        self.stopped_early = False
        self.runtime_metadata: dict[str, Any] = {}

    @property
    def last_result(self) -> dict[str, Any]:
        if self._last_result is None:
            rows = read_results(self.path)
            self._last_result = rows[-1] if rows else {}
        return self._last_result

    @property
    def logdir(self) -> str:
        return self.path

    local_path = local_dir = logdir

    @property
    def checkpoint(self) -> Checkpoint | None:
        return Checkpoint(self.checkpoints[-1][0]) if self.checkpoints else None

    @property
    def error_file(self) -> str | None:
        path = os.path.join(self.path, "error.txt")
        return path if os.path.exists(path) else None

    pickled_error_file = property(lambda self: os.path.join(self.path, "error.pkl") if self.error_file else None)

    def get_error(self) -> BaseException | None:
        if self.status != self.ERROR:
            return None
        return load_error(self.path, self.error_text)

    def is_finished(self) -> bool:
        return self.status in (self.TERMINATED, self.ERROR)

    @property
    def has_checkpoint(self) -> bool:
        return bool(self.checkpoints)

    def __repr__(self) -> str:
        return self.name

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trial) and other.trial_id == self.trial_id

    def __hash__(self) -> int:
        return hash(self.trial_id)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, (list, tuple)):
        return ",".join(_short(item) for item in value)
    return getattr(value, "__name__", None) or str(value)


def tag_of(number: int, varying: dict[str, Any]) -> str:
    """ "17_lr=0.0100,act=relu" """
    parts = [f"{path.rsplit('/', 1)[-1]}={_short(value)}" for path, value in sorted(varying.items())]
    return f"{number}_{','.join(parts)}" if parts else str(number)


def folder_name(name: str, tag: str, date: str) -> str:
    """The trial's folder: printable characters, at most TUNE_MAX_LEN_IDENTIFIER before the date."""
    longest = int(os.environ.get("TUNE_MAX_LEN_IDENTIFIER", "130"))
    text = f"{name}_{tag}"[:longest]
    safe = "".join(letter if letter.isalnum() or letter in "._-=," else "_" for letter in text)
    return f"{safe}_{date}"


def read_results(folder: str) -> list[dict[str, Any]]:
    """The lines of result.json. One that was cut by a crash is left out."""
    rows = []
    try:
        with open(os.path.join(folder, "result.json")) as file:
            for line in file:
                try:
                    rows.append(json.loads(line))
                except json.JSONDecodeError:
                    continue
    except FileNotFoundError:
        pass
    return rows


def load_error(folder: str, text: str) -> BaseException | None:
    """The exception of a failed trial as it was raised there, else a TuneError with its text."""
    import pickle

    from .error import TuneError

    try:
        with open(os.path.join(folder, "error.pkl"), "rb") as file:
            found = pickle.load(file)
            if isinstance(found, BaseException):
                return found
    except Exception:  # its class may not be here
        pass
    try:
        with open(os.path.join(folder, "error.txt")) as stream:
            return TuneError(stream.read())
    except FileNotFoundError:
        return TuneError(text) if text else None
