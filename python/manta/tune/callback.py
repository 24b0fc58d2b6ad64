"""Callbacks: a user's code that sees what happens in a run, under Ray's names."""
from __future__ import annotations

import os
import time
from typing import Any

__all__ = ["Callback", "CallbackList"]


class Callback:
    """Methods are called in the driver, one after the other. One that raises ends the run."""

    def setup(self, stop: Any = None, num_samples: int | None = None, total_num_samples: int | None = None,
              **info: Any) -> None:
        """Before the first trial."""

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        pass

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        pass

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        pass

    def on_trial_restore(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        pass

    def on_trial_save(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        pass

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any],
                        **info: Any) -> None:
        pass

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        pass

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """The trial failed and will be started again."""

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        pass

    def on_checkpoint(self, iteration: int, trials: list[Any], trial: Any, checkpoint: Any, **info: Any) -> None:
        pass

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        pass

    def get_state(self) -> dict[str, Any] | None:
        """What set_state needs after a restore; None: nothing."""
        return None

    def set_state(self, state: dict[str, Any]) -> None:
        pass


class CallbackList:
    """Calls the callbacks that override a method. An error names the callback."""

    def __init__(self, callbacks: list[Any]) -> None:
        self.callbacks = list(callbacks)
        self._by_method: dict[str, list[Any]] = {}

    def has(self, method: str) -> bool:
        return bool(self._of(method))

    def _of(self, method: str) -> list[Any]:
        known = self._by_method.get(method)
        if known is None:
            known = self._by_method[method] = [
                one for one in self.callbacks
                if getattr(type(one), method, None) is not getattr(Callback, method)]
        return known

    def call(self, method: str, *args: Any, **kwargs: Any) -> None:
        for one in self._of(method):
            started = time.monotonic()
            try:
                getattr(one, method)(*args, **kwargs)
            except Exception as error:
                from .error import TuneError

                text = f"callback {type(one).__name__}.{method} raised {type(error).__name__}: {error}"
                raise TuneError(f"{text}. The run has ended; its state is complete: repair the callback and restore "
                                "the run") from error
            took = time.monotonic() - started
            if took > float(os.environ.get("TUNE_WARN_THRESHOLD_S", "0.5")):
                print(f"tune: callback {type(one).__name__}.{method} took {took:.1f} s; trials wait for it", flush=True)

    def get_state(self) -> dict[int, Any]:
        out = {}
        for number, one in enumerate(self.callbacks):
            state = one.get_state() if hasattr(one, "get_state") else None
            if state is not None:
                out[number] = state
        return out

    def set_state(self, states: dict[int, Any]) -> None:
        for number, state in states.items():
            if number < len(self.callbacks):
                self.callbacks[number].set_state(state)
