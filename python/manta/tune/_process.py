"""The actor in which trials run: one at a time, each a function on a thread of its own or a Trainable object.

The driver calls `start`, then `go_on` until the trial ends. Each of them waits for results and returns a batch (see
Session.take). A trial that is stopped is unwound by StopTrial, which report raises.
"""
from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

from . import _session
from ._checkpoint import settle
from ._session import Order, Session, StopTrial
from .trainable import Trainable

_UNWIND_S = 1.5  # that a stopped function has to leave its own code before its process is ended
_BATCH_S = 0.02  # steps of a class that nothing may stop are sent together


class Process:
    """The class of the actor."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self._thread: threading.Thread | None = None
        self._object: Trainable | None = None
        self._streams: Any = None

    def start(self, trainable: Any, order: Order) -> tuple[Any, ...]:
        """Begins a trial. (facts about this process, first batch)"""
        self._enter(order)
        if isinstance(trainable, type):
            batch = self._start_class(trainable, order)
        else:
            self._thread = threading.Thread(target=self._run, args=(trainable, order), daemon=True, name="trial")
            self._thread.start()
            batch = self._take()
        return _facts(), batch

    def go_on(self) -> tuple[Any, ...]:
        """The trial was continued: the next batch."""
        if self._object is not None:
            return self._steps()
        return self._take()

    def save(self) -> str:
        """Writes a checkpoint of the running class; its folder."""
        return self._save()

    def stop(self, keep: bool) -> bool:
        """Ends the trial. With `keep` the process may start another one afterwards; False: it cannot."""
        if self._thread is not None and self._session is not None:
            self._session.stop()
            self._thread.join(_UNWIND_S)
            if self._thread.is_alive():
                return False
        self.leave()
        if not keep:
            self.finish()
        return True

    def leave(self) -> None:
        """The trial has ended; the object of a class stays, and may become another trial."""
        self._thread = None
        self._leave()

    def finish(self) -> None:
        """Before the process ends."""
        if self._object is not None:
            self._object.stop()
            self._object = None

    def clone(self, trainable: Any, order: Order) -> tuple[Any, ...] | None:
        """The running class goes on as another one: reset_config and the donor's checkpoint. None: it cannot."""
        thing = self._object
        if thing is None:
            return None
        self._enter(order)
        if not thing.reset(order.config):
            return None
        if order.checkpoint:
            thing.restore(order.checkpoint)
        return _facts(), self._steps()

    # ---- functions ----

    def _take(self) -> tuple[Any, ...]:
        assert self._session is not None
        return self._session.take()

    def _run(self, function: Any, order: Order) -> None:
        session = self._session
        assert session is not None
        try:
            returned = function(order.config)
            last = None
            if hasattr(returned, "__next__"):  # it yields its results
                for metrics in returned:
                    _session.report(metrics)
            elif isinstance(returned, dict):
                last = returned
            elif isinstance(returned, (int, float)) and not isinstance(returned, bool):
                last = {"_metric": returned}
            session.finish(("done",), last)
        except StopTrial:
            session.finish(("stopped",))
        except BaseException as error:
            session.finish(("error", *_described(error)))

    # ---- classes ----

    def _start_class(self, kind: type[Trainable], order: Order) -> tuple[Any, ...]:
        try:
            thing = self._object
            if thing is None or type(thing) is not kind or not thing.reset(order.config):
                if thing is not None:
                    thing.stop()
                self._object = thing = kind(order.config)
            if order.checkpoint:
                thing.restore(order.checkpoint)
            thing._time_total = max(thing._time_total, order.time_total)
        except BaseException as error:
            self._object = None
            return [], [], {}, ("error", *_described(error))
        return self._steps()

    def _steps(self) -> tuple[Any, ...]:
        session, thing = self._session, self._object
        assert session is not None and thing is not None
        results: list[dict[str, Any]] = []
        times: list[float] = []
        saved: dict[int, str] = {}
        end: tuple[Any, ...] | None = None
        until = time.monotonic() + _BATCH_S
        try:
            while True:
                session.watch(True)
                result = thing.train()
                done = bool(result.get("done"))
                every = session.order.frequency
                if result.pop("should_checkpoint", False) or (every and thing.iteration % every == 0):
                    saved[len(results)] = self._save()
                results.append(result)
                times.append(time.time())
                if done:
                    end = ("done",)
                if done or session.order.sync or time.monotonic() > until:
                    break
        except BaseException as error:
            end = ("error", *_described(error))
        return results, times, saved, end

    def _save(self) -> str:
        session, thing = self._session, self._object
        assert session is not None and thing is not None
        folder = os.path.join(session.order.trial_dir, f"checkpoint_{session.next_checkpoint:06d}")
        partial = f"{folder}.partial-{os.getpid()}"
        thing.save(partial)
        settle(partial, folder)
        session.next_checkpoint += 1
        return folder

    # ---- surroundings ----

    def _enter(self, order: Order) -> None:
        self._session = _session.current = Session(order)
        if order.chdir and order.trial_dir:
            os.makedirs(order.trial_dir, exist_ok=True)
            os.chdir(order.trial_dir)
        os.environ["TUNE_ORIG_WORKING_DIR"] = os.environ.get("TUNE_ORIG_WORKING_DIR", os.getcwd())
        if order.log_to_file is not None:
            self._streams = sys.stdout, sys.stderr
            out, err = order.log_to_file
            first = _Tee(os.path.join(order.trial_dir, out), sys.stdout)
            sys.stdout = first  # type: ignore[assignment]
            sys.stderr = first if err == out else _Tee(os.path.join(order.trial_dir, err), sys.stderr)  # type: ignore

    def _leave(self) -> None:
        if self._session is not None:
            self._session.watch(False)
        self._session = _session.current = None
        if self._streams is not None:
            sys.stdout, sys.stderr = self._streams
            self._streams = None


class _Tee:
    """Writes to the trial's file and to where the stream went before."""

    def __init__(self, path: str, other: Any) -> None:
        self._file = open(path, "a", buffering=1)
        self._other = other

    def write(self, text: str) -> int:
        self._file.write(text)
        return int(self._other.write(text))

    def flush(self) -> None:
        self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._other, name)


def _host() -> tuple[str, str]:
    """(hostname, node_ip). A lookup may take long: the server that workers are forks of makes it once."""
    import socket

    name = socket.gethostname()
    try:
        return name, socket.gethostbyname(name)
    except OSError:
        return name, "127.0.0.1"


_HOST = _host()


def _facts() -> tuple[int, str, str]:
    """(pid, hostname, node_ip)"""
    return os.getpid(), *_HOST


def _described(error: BaseException) -> tuple[str, str, bytes]:
    """(one line, the traceback, the pickled exception or nothing)"""
    import traceback

    from .._serialize import dumps_plain

    frames = traceback.extract_tb(error.__traceback__)
    own = os.path.dirname(os.path.abspath(__file__))
    while frames and os.path.dirname(os.path.abspath(frames[0].filename)) == own:
        del frames[0]
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames),
             *traceback.format_exception_only(type(error), error)]
    text = "".join(lines)
    if error.__cause__ is not None or (error.__context__ is not None and not error.__suppress_context__):
        text = "".join(traceback.format_exception(error))
    try:
        pickled = dumps_plain(error)
    except Exception:
        pickled = b""
    short = "".join(traceback.format_exception_only(type(error), error)).strip().splitlines()
    return (short[0] if short else type(error).__name__), text, pickled


def pickled_error(error: BaseException) -> bytes:
    from .._serialize import dumps_plain

    return dumps_plain(error)
