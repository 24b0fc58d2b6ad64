"""Base classes of schedulers, under Ray's names."""
from __future__ import annotations

from typing import Any

from ..error import Checked

__all__ = ["FIFOScheduler", "TrialScheduler"]


class TrialScheduler:
    """Decides which trials go on. A user's subclass has Ray's methods; `tune_controller` offers get_trials,
    get_live_trials, get_trial, stop_trial, pause_trial and has_resources_for_trial.
    """

    CONTINUE = "CONTINUE"
    PAUSE = "PAUSE"
    STOP = "STOP"
    NOOP = "NOOP"

    _metric: Any = None
    _mode: Any = None

    @property
    def metric(self) -> Any:
        return self._metric

    @property
    def supports_buffered_results(self) -> bool:
        return True

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        if self._metric and metric and self._metric != metric:
            return False
        if self._mode and mode and self._mode != mode:
            return False
        self._metric = self._metric or metric
        self._mode = self._mode or mode
        return True

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no method on_trial_add")

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no method on_trial_error")

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        raise NotImplementedError(f"{type(self).__name__} has no method on_trial_result")

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no method on_trial_complete")

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no method on_trial_remove")

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no method choose_trial_to_run")

    def debug_string(self) -> str:
        return f"Using {type(self).__name__}"

    def save(self, checkpoint_path: str) -> None:
        from ..._serialize import dumps_plain

        with open(checkpoint_path, "wb") as file:
            file.write(dumps_plain(self.__dict__))

    def restore(self, checkpoint_path: str) -> None:
        import pickle

        with open(checkpoint_path, "rb") as file:
            self.__dict__.update(pickle.load(file))


class FIFOScheduler(TrialScheduler):
    """Trials run in the order in which they were added."""

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        pass

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        pass

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        return self.CONTINUE

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        pass

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        pass

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        return tune_controller.first_trial_to_run()


_DECISIONS = ("on_trial_add", "on_trial_error", "on_trial_result", "on_trial_complete", "on_trial_remove",
              "choose_trial_to_run")


class NativeScheduler(TrialScheduler, metaclass=Checked):
    """A scheduler of the C++ library. `spec` names it and its options."""

    kind = ""
    may_stop = True  # report waits for its decision
    pauses = False  # trials need checkpoints

    def __init__(self, time_attr: str, metric: str | None, mode: str | None, **options: Any) -> None:
        if mode not in (None, "min", "max"):
            raise ValueError(f"{type(self).__name__}(mode={mode!r}): the mode must be 'min' or 'max'")
        self._time_attr, self._metric, self._mode = time_attr, metric, mode
        self.options = options

    @property
    def time_attr(self) -> str:
        return self._time_attr

    def native_options(self, space: Any) -> dict[str, Any]:
        """The options of the native part; `space` is the run's _space.Space."""
        return dict(self.options)

    def spec(self, mode: str, seed: int | None, space: Any) -> tuple[str, dict[str, Any]]:
        for name in _DECISIONS:
            if name in vars(type(self)):
                raise NotImplementedError(f"{type(self).__name__} overrides {name} of a native scheduler: derive it "
                                          "from TrialScheduler or FIFOScheduler instead")
        return self.kind, {**self.native_options(space), "mode": mode}


def is_native(scheduler: Any) -> bool:
    """FIFOScheduler itself runs natively; a subclass that decides anything runs in Python."""
    return isinstance(scheduler, NativeScheduler) or type(scheduler) is FIFOScheduler
