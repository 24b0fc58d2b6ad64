"""What a trial's own code calls: report, get_checkpoint, get_context. One trial at a time per process."""
from __future__ import annotations

import threading
import time
from typing import Any

from ._checkpoint import Checkpoint, persist

__all__ = ["TuneContext", "get_checkpoint", "get_context", "report"]

STACKS = "stacks.txt"  # of a trial that did not report in time
WINDOW = 4096  # results that a trial may be ahead of the driver, if nothing may stop it


class StopTrial(BaseException):
    """Raised inside report in a trial that was stopped: it unwinds the user's function, so that its context managers
    clean up. No Exception: a handler of the user's errors must not catch it.
    """


class Order:
    """What the driver says when it starts a trial. Sent to the process as it is."""

    def __init__(self) -> None:
        self.trial_id = self.trial_name = self.trial_dir = self.experiment_name = ""
        self.experiment_dir = ""
        self.config: dict[str, Any] = {}
        self.resources: Any = None
        self.metadata: dict[str, Any] = {}
        self.checkpoint: str | None = None  # a folder
        self.iteration = 0  # of the checkpoint
        self.next_checkpoint = 0
        self.sync = True  # report waits for the driver's decision
        self.log_to_file: tuple[str, str] | None = None
        self.frequency = 0  # checkpoint_frequency
        self.chdir = True
        self.time_total = 0.0
        self.report_timeout: float | None = None


class Session:
    """The results of one trial on their way to the driver."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.checkpoint = Checkpoint(order.checkpoint) if order.checkpoint else None
        self.changed = threading.Condition()
        self.results: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.saved: dict[int, str] = {}  # by the position in results
        self.next_checkpoint = order.next_checkpoint
        self.sent = 0  # results that the driver has not acknowledged
        self.stopped = False
        self.end: tuple[Any, ...] | None = None
        self._stacks = open(f"{order.trial_dir}/{STACKS}", "w") if order.report_timeout else None
        self.watch(True)

    def watch(self, on: bool) -> None:
        """With a report_timeout_s: the stacks of a trial that computes for longer are written to a file."""
        if self._stacks is not None:
            import faulthandler

            faulthandler.cancel_dump_traceback_later()
            if on:
                faulthandler.dump_traceback_later(float(self.order.report_timeout or 0), file=self._stacks)

    def report(self, metrics: dict[str, Any], checkpoint: Checkpoint | None) -> None:
        folder = None
        if checkpoint is not None:
            folder = f"{self.order.trial_dir}/checkpoint_{self.next_checkpoint:06d}"
            if checkpoint.path != folder:
                persist(checkpoint.path, folder)
            self.next_checkpoint += 1
            self.checkpoint = Checkpoint(folder)
        with self.changed:
            if self.stopped:
                raise StopTrial
            if folder is not None:
                self.saved[len(self.results)] = folder
            self.results.append(metrics)
            self.times.append(time.time())
            limit = 1 if self.order.sync else WINDOW
            if len(self.results) == 1:
                self.changed.notify_all()
            if self._stacks is not None:
                self.watch(False)
            while len(self.results) + self.sent >= limit and not self.stopped:
                self.changed.wait()
            if self.stopped:
                raise StopTrial
        if self._stacks is not None:
            self.watch(True)

    def finish(self, end: tuple[Any, ...], last: dict[str, Any] | None = None) -> None:
        """The function has ended; `last` is the result that it returned."""
        with self.changed:
            if last is not None:
                self.results.append(last)
                self.times.append(time.time())
            self.end = end
            self.changed.notify_all()

    def take(self) -> tuple[Any, ...]:
        """The next batch: (results, times, checkpoints by position, the end or None). Waits for one."""
        with self.changed:
            self.sent = 0
            self.changed.notify_all()
            while not self.results and self.end is None:
                self.changed.wait()
            batch = (self.results, self.times, self.saved, self.end)
            self.sent = len(self.results) if self.order.sync else 0
            self.results, self.times, self.saved = [], [], {}
            return batch

    def stop(self) -> None:
        with self.changed:
            self.stopped = True
            self.changed.notify_all()


current: Session | None = None


def _session(name: str) -> Session:
    if current is None:
        raise RuntimeError(f"tune.{name}() was called outside a trial: call it in the function that Tuner runs")
    return current


def report(metrics: dict[str, Any], *, checkpoint: Checkpoint | None = None,
           checkpoint_dir_name: str | None = None) -> None:
    """Passes one result of this trial to the run. Waits for its decision when the run may stop the trial."""
    session = current
    if session is None:
        session = _session("report")
    if type(metrics) is not dict:
        if not isinstance(metrics, dict):
            raise TypeError(f"tune.report({metrics!r}): the metrics must be a dictionary, as "
                            '{"loss": 0.5}; keyword arguments were removed by Ray')
        metrics = dict(metrics)
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        raise TypeError(f"tune.report(checkpoint={checkpoint!r}): it must be a Checkpoint, as "
                        "Checkpoint.from_directory(path)")
    session.report(metrics, checkpoint)


def get_checkpoint() -> Checkpoint | None:
    """The last checkpoint of this trial, or the one that it was started from; None for a new trial."""
    return _session("get_checkpoint").checkpoint


def get_context() -> TuneContext:
    return TuneContext()


class TuneContext:
    """Facts about the trial that this process runs; None outside a trial."""

    def get_trial_id(self) -> str | None:
        return None if current is None else current.order.trial_id

    def get_trial_name(self) -> str | None:
        return None if current is None else current.order.trial_name

    def get_trial_dir(self) -> str | None:
        return None if current is None else current.order.trial_dir

    def get_trial_resources(self) -> Any:
        return None if current is None else current.order.resources

    def get_experiment_name(self) -> str | None:
        return None if current is None else current.order.experiment_name

    def get_metadata(self) -> dict[str, Any] | None:
        return None if current is None else current.order.metadata

    def get_storage(self) -> Any:
        raise NotImplementedError("TuneContext.get_storage is internal to Ray: use get_trial_dir()")

    def __getattr__(self, name: str) -> Any:
        import difflib

        close = difflib.get_close_matches(name, [key for key in dir(TuneContext) if key.startswith("get_")], 1)
        hint = f". Did you mean {close[0]}?" if close else ""
        raise AttributeError(f"TuneContext has no attribute {name!r}{hint}")
