"""Searchers and schedulers written in Python, as the native controller calls them."""
from __future__ import annotations

import base64
import os
import pickle
from typing import Any

from .._serialize import dumps_plain
from .search.searcher import Searcher

PICKLED = "pickled"  # the key of a configuration that a Python searcher has made
STATE_FILE = "searcher.pkl"


def pack(config: dict[str, Any]) -> dict[str, Any]:
    return {PICKLED: base64.b64encode(dumps_plain(config)).decode()}


def unpack(flat: dict[str, Any]) -> dict[str, Any]:
    return dict(pickle.loads(base64.b64decode(flat[PICKLED])))


class SearcherAdapter:
    """Calls a Searcher of the user's. Its state is saved after every call that changes it, with the number of calls.

    In a replay the recorded configurations are used: calls are counted, and only those that the saved state has not
    seen are made.
    """

    def __init__(self, searcher: Searcher, loop: Any, folder: str) -> None:
        self.searcher, self._loop = searcher, loop
        self._path = os.path.join(folder, STATE_FILE)
        self.calls = 0  # made, or replayed
        self._known = 0  # calls that the loaded state has seen
        self.replaying = False

    def load_state(self) -> None:
        try:
            with open(self._path, "rb") as file:
                self._known, state = pickle.load(file)
            self.searcher.set_state(state)
        except FileNotFoundError:
            pass

    def _skipped(self) -> bool:
        self.calls += 1
        return self.replaying and self.calls <= self._known

    def store(self) -> None:
        if self.replaying:
            return
        partial = f"{self._path}.partial"
        with open(partial, "wb") as file:
            file.write(dumps_plain((self.calls, self.searcher.get_state())))
        os.replace(partial, self._path)

    def ask(self, number: int) -> Any:
        self.calls += 1
        answer = self.searcher.suggest(self._loop.id_of(number))
        if answer is None:
            self.calls -= 1
            return None
        if isinstance(answer, str) and answer == Searcher.FINISHED:
            return False
        if not isinstance(answer, dict):
            raise TypeError(f"{type(self.searcher).__name__}.suggest returned {answer!r}: it must return a dictionary, "
                            "None or Searcher.FINISHED")
        self.store()
        return pack(answer)

    def report(self, number: int, time: float, value: float) -> None:
        if not self._skipped():
            self.searcher.on_trial_result(self._loop.id_of(number), self._loop.result_of(number))

    def tell(self, number: int, values: list[float]) -> None:
        if not self._skipped():
            self.searcher.on_trial_complete(self._loop.id_of(number), result=self._loop.result_of(number), error=False)
            self.store()

    def fail(self, number: int) -> None:
        if not self._skipped():
            result = self._loop.result_of(number)
            self.searcher.on_trial_complete(self._loop.id_of(number), result=result or None,
                                            error=self._loop.failed(number))
            self.store()

    def save(self) -> bytes:
        return b""

    def load(self, state: bytes) -> None:
        pass


class ControllerView:
    """What a user-written scheduler may ask and do: Ray's `tune_controller`."""

    def __init__(self, loop: Any) -> None:
        self._loop = loop

    def get_trials(self) -> list[Any]:
        return list(self._loop.trials)

    def get_live_trials(self) -> set[Any]:
        return {trial for trial in self._loop.trials if not trial.is_finished()}

    def get_trial(self, trial_id: str) -> Any:
        for trial in self._loop.trials:
            if trial.trial_id == trial_id:
                return trial
        return None

    def stop_trial(self, trial: Any) -> None:
        self._loop.later(("stop", trial.number))

    def pause_trial(self, trial: Any, should_checkpoint: bool = True) -> None:
        raise NotImplementedError("pause_trial: return TrialScheduler.PAUSE from on_trial_result of the trial")

    def has_resources_for_trial(self, trial: Any) -> bool:
        return True  # the native controller checks before it starts a trial

    def first_trial_to_run(self) -> Any:
        for number in (self._loop.native.first_pending(), self._loop.native.first_paused()):
            if number is not None:
                return self._loop.trial_of(number)
        return None

    @property
    def search_alg(self) -> Any:
        return self._loop.searcher


class SchedulerAdapter:
    """Calls a TrialScheduler of the user's."""

    def __init__(self, scheduler: Any, loop: Any) -> None:
        self.scheduler, self._loop = scheduler, loop
        self._view = ControllerView(loop)

    def on_add(self, number: int) -> None:
        self._loop.added(number)
        self.scheduler.on_trial_add(self._view, self._loop.trial_of(number))

    def on_result(self, number: int, time: float | None, value: float | None) -> int:
        trial = self._loop.trial_of(number)
        answer = self.scheduler.on_trial_result(self._view, trial, self._loop.result_of(number))
        known = {"CONTINUE": 0, "NOOP": 0, "PAUSE": 1, "STOP": 2}
        if answer not in known:
            raise ValueError(f"{type(self.scheduler).__name__}.on_trial_result returned {answer!r}: it must return "
                             "TrialScheduler.CONTINUE, PAUSE or STOP")
        return known[answer]

    def on_complete(self, number: int) -> None:
        self.scheduler.on_trial_complete(self._view, self._loop.trial_of(number), self._loop.result_of(number))

    def on_error(self, number: int) -> None:
        self.scheduler.on_trial_error(self._view, self._loop.trial_of(number))

    def on_remove(self, number: int) -> None:
        self.scheduler.on_trial_remove(self._view, self._loop.trial_of(number))

    def choose(self) -> int | None:
        trial = self.scheduler.choose_trial_to_run(self._view)
        return None if trial is None else int(trial.number)
