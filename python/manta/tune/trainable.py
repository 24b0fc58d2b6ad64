"""Trainable: a training program as a class with one `step` per result, under Ray's names."""
from __future__ import annotations

import os
import tempfile
import time
from typing import Any

from ._checkpoint import Checkpoint

__all__ = ["Trainable"]

_DICT_FILE = "_dict_checkpoint.pkl"  # what save_checkpoint returned, if it was a dictionary


class Trainable:
    """Subclasses override setup, step, save_checkpoint and load_checkpoint."""

    def __init__(self, config: dict[str, Any] | None = None, logger_creator: Any = None, storage: Any = None) -> None:
        from . import _session

        order = _session.current.order if _session.current is not None else None
        self.config = dict(config or {})
        self._iteration = 0
        self._time_total = 0.0
        self._since_restore = 0
        self._time_since_restore = 0.0
        self._timesteps_total: int | None = None
        self._episodes_total: int | None = None
        self._order = order
        self._logdir = order.trial_dir if order is not None else None
        self.setup(_copied(self.config))

    # What a user overrides.

    def setup(self, config: dict[str, Any]) -> None:
        """Called once, before the first step."""

    def step(self) -> dict[str, Any]:
        """One iteration; returns its metrics."""
        raise NotImplementedError(f"{type(self).__name__} has no method step")

    def save_checkpoint(self, checkpoint_dir: str) -> str | dict[str, Any] | None:
        """Writes the state into the folder, or returns it as a dictionary."""
        raise NotImplementedError(f"{type(self).__name__} has no method save_checkpoint: a run that saves or pauses "
                                  "trials needs it")

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Reads what save_checkpoint wrote: the folder, or the dictionary."""
        raise NotImplementedError(f"{type(self).__name__} has no method load_checkpoint: a run that restores trials "
                                  "needs it")

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Makes this object a new trial with another configuration; False when it cannot."""
        return False

    def cleanup(self) -> None:
        """Called once, after the last step."""

    def log_result(self, result: dict[str, Any]) -> None:
        """Called with every result in the trial's process."""

    def export_model(self, export_formats: Any, export_dir: str | None = None) -> dict[str, Any]:
        return self._export_model(export_formats, export_dir or self.logdir or tempfile.gettempdir())

    def _export_model(self, export_formats: Any, export_dir: str) -> dict[str, Any]:
        return {}

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> Any:
        """The resources of a trial with this configuration; None for the run's own."""
        return None

    @classmethod
    def resource_help(cls, config: dict[str, Any]) -> str:
        return ""

    # What the run calls, and what works without a run, too.

    def train(self) -> dict[str, Any]:
        started = time.time()
        result = self.step()
        if not isinstance(result, dict):
            raise TypeError(f"{type(self).__name__}.step returned {type(result).__name__}: it must return a dictionary "
                            "of metrics")
        result = dict(result)
        took = result.get("time_this_iter_s", time.time() - started)
        self._iteration += 1
        self._since_restore += 1
        self._time_total += took
        self._time_since_restore += took
        result.setdefault("training_iteration", self._iteration)
        self._iteration = result["training_iteration"]
        result["time_this_iter_s"] = took
        self.log_result(result)
        return result

    def save(self, checkpoint_dir: str | None = None) -> Checkpoint:
        """Writes a checkpoint into the folder."""
        folder = checkpoint_dir or tempfile.mkdtemp(prefix="checkpoint_")
        os.makedirs(folder, exist_ok=True)
        saved = self.save_checkpoint(folder)
        if isinstance(saved, dict):
            from .._serialize import dumps_plain

            with open(os.path.join(folder, _DICT_FILE), "wb") as file:
                file.write(dumps_plain(saved))
        elif isinstance(saved, str) and not os.path.realpath(saved).startswith(os.path.realpath(folder)):
            raise ValueError(f"{type(self).__name__}.save_checkpoint returned {saved!r}: it must write into the folder "
                             f"that it was given, {folder!r}")
        checkpoint = Checkpoint(folder)
        checkpoint.update_metadata({"iteration": self._iteration, "time_total": self._time_total})
        return checkpoint

    def restore(self, checkpoint_path: str | Checkpoint) -> None:
        checkpoint = checkpoint_path if isinstance(checkpoint_path, Checkpoint) else Checkpoint(checkpoint_path)
        about = checkpoint.get_metadata()
        self._iteration = int(about.get("iteration", self._iteration))
        self._time_total = float(about.get("time_total", self._time_total))
        self._since_restore, self._time_since_restore = 0, 0.0
        file = os.path.join(checkpoint.path, _DICT_FILE)
        if os.path.exists(file):
            import pickle

            with open(file, "rb") as stream:
                self.load_checkpoint(pickle.load(stream))
        else:
            self.load_checkpoint(checkpoint.path)

    def reset(self, new_config: dict[str, Any], logger_creator: Any = None, storage: Any = None) -> bool:
        """reset_config, and everything that counts starts again."""
        from . import _session

        self._order = _session.current.order if _session.current is not None else None
        self._logdir = self._order.trial_dir if self._order is not None else None
        if not self.reset_config(_copied(new_config)):
            return False
        self.config = dict(new_config)
        self._iteration = self._since_restore = 0
        self._time_total = self._time_since_restore = 0.0
        return True

    def stop(self) -> None:
        self.cleanup()

    @property
    def iteration(self) -> int:
        return self._iteration

    training_iteration = iteration

    @property
    def logdir(self) -> str | None:
        return self._logdir

    @property
    def trial_id(self) -> str | None:
        return self._order.trial_id if self._order is not None else "default"

    @property
    def trial_name(self) -> str | None:
        return self._order.trial_name if self._order is not None else "default"

    @property
    def trial_resources(self) -> Any:
        return self._order.resources if self._order is not None else None

    def get_config(self) -> dict[str, Any]:
        return self.config


def _copied(config: dict[str, Any]) -> dict[str, Any]:
    import copy

    try:
        return copy.deepcopy(config)
    except Exception:  # an object that cannot be copied is shared
        return dict(config)
