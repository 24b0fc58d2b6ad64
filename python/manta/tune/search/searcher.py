"""Base classes of searchers, under Ray's names."""
from __future__ import annotations

import os
from typing import Any

from ..error import Checked

__all__ = ["ConcurrencyLimiter", "Repeater", "SearchAlgorithm", "Searcher"]

TRIAL_INDEX = "__trial_index__"


class Searcher:
    """Proposes configurations. Subclasses override suggest and on_trial_complete."""

    FINISHED = "FINISHED"
    CKPT_FILE_TMPL = "searcher-state-{}.pkl"

    def __init__(self, metric: Any = None, mode: Any = None) -> None:
        for one in mode if isinstance(mode, (list, tuple)) else [mode]:
            if one not in (None, "min", "max"):
                raise ValueError(f"{type(self).__name__}(mode={mode!r}): the mode must be 'min' or 'max'")
        self._metric, self._mode = metric, mode

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        """The run's metric, mode and space. True: the searcher takes the space."""
        return False

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """A configuration, None (ask later) or Searcher.FINISHED."""
        raise NotImplementedError(f"{type(self).__name__} has no method suggest")

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        pass

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        pass

    def add_evaluated_point(self, parameters: dict[str, Any], value: float, error: bool = False, pruned: bool = False,
                            intermediate_values: list[float] | None = None) -> None:
        raise NotImplementedError(f"{type(self).__name__} cannot learn from known results")

    def add_evaluated_trials(self, trials_or_analysis: Any, metric: str) -> None:
        for trial in getattr(trials_or_analysis, "trials", trials_or_analysis):
            if trial.last_result and metric in trial.last_result:
                self.add_evaluated_point(trial.config, trial.last_result[metric], error=trial.status == "ERROR")

    def on_pause(self, trial_id: str) -> None:
        pass

    def on_unpause(self, trial_id: str) -> None:
        pass

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        return False

    def get_state(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def set_state(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def save(self, checkpoint_path: str) -> None:
        from ..._serialize import dumps_plain

        with open(checkpoint_path, "wb") as file:
            file.write(dumps_plain(self.get_state()))

    def restore(self, checkpoint_path: str) -> None:
        import pickle

        with open(checkpoint_path, "rb") as file:
            self.set_state(pickle.load(file))

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        self.save(os.path.join(checkpoint_dir, self.CKPT_FILE_TMPL.format(session_str)))

    def restore_from_dir(self, checkpoint_dir: str) -> None:
        names = sorted(name for name in os.listdir(checkpoint_dir) if name.startswith("searcher-state-"))
        if not names:
            raise RuntimeError(f"{checkpoint_dir} has no state of a searcher (searcher-state-*.pkl)")
        self.restore(os.path.join(checkpoint_dir, names[-1]))

    @property
    def metric(self) -> Any:
        return self._metric

    @property
    def mode(self) -> Any:
        return self._mode


class SearchAlgorithm(Searcher):
    """Ray's older base class. Manta treats it as a Searcher."""


class NativeSearcher(Searcher, metaclass=Checked):
    """A searcher of the C++ library. It works in a run, and alone through suggest and on_trial_complete."""

    kind = ""
    learns = True  # has evaluated_rewards

    def __init__(self, space: dict[str, Any] | None = None, metric: Any = None, mode: Any = None,
                 points_to_evaluate: list[dict[str, Any]] | None = None,
                 evaluated_rewards: list[float] | None = None, seed: int | None = None, **options: Any) -> None:
        super().__init__(metric, mode)
        if evaluated_rewards is not None and len(evaluated_rewards) > len(points_to_evaluate or []):
            raise ValueError(f"{type(self).__name__}: evaluated_rewards has {len(evaluated_rewards)} values, "
                             f"points_to_evaluate {len(points_to_evaluate or [])}: each reward needs its point")
        self.space = space
        self.points_to_evaluate = list(points_to_evaluate or [])
        self.evaluated_rewards = list(evaluated_rewards or [])
        self.seed = seed
        self.options = {name: value for name, value in options.items() if value is not None}
        self._native: Any = None
        self._space: Any = None
        self._numbers: dict[str, int] = {}

    def native_options(self, space: Any) -> dict[str, Any]:
        return dict(self.options)

    def build(self, space: Any, metric: Any, mode: Any, seed: int | None, num_samples: int) -> Any:
        """The native object for a run. `space` is a _space.Space."""
        from ... import _tune

        options = self.native_options(space)
        chosen = self.seed if self.seed is not None else seed
        options["seed"] = 0 if chosen is None else int(chosen)
        modes = list(mode) if isinstance(mode, (list, tuple)) else [mode or "max"]
        if len(modes) > 1 and self.learns and self.kind not in ("tpe", "nsga2"):
            raise ValueError(f"{type(self).__name__} has one objective, but metric has {len(modes)}: use TPESearch or "
                             "NSGA2Search")
        options["mode"] = modes[0]
        if len(modes) > 1 and self.learns:
            options["modes"] = modes
        points = [space.encode(point) for point in self.points_to_evaluate]
        if points:
            options["points_to_evaluate"] = points
        if self.evaluated_rewards:
            options["evaluated_rewards"] = [float(value) for value in self.evaluated_rewards]
        if self.kind == "random":
            options["num_samples"] = num_samples
        return _tune.make_searcher(self.kind, space.parameters, options)

    def set_search_properties(self, metric: Any, mode: Any, config: dict[str, Any], **spec: Any) -> bool:
        if self._space is not None:
            return False
        self._metric, self._mode = metric or self._metric, mode or self._mode
        self.space = self.space or config
        return True

    def add_evaluated_point(self, parameters: dict[str, Any], value: float, error: bool = False, pruned: bool = False,
                            intermediate_values: list[float] | None = None) -> None:
        if not self.learns:
            raise NotImplementedError(f"{type(self).__name__} does not learn from results")
        if error or pruned:
            return
        known = len(self.evaluated_rewards)
        self.points_to_evaluate.insert(known, dict(parameters))
        self.evaluated_rewards.append(float(value))

    # Without a run.

    def _alone(self) -> Any:
        if self._native is None:
            from .._space import Space

            if self.space is None:
                raise ValueError(f"{type(self).__name__} has no space: pass space=..., or use it in a Tuner")
            self._space = Space(self.space)
            self._native = self.build(self._space, self._metric, self._mode, None, -1)
        return self._native

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        native = self._alone()
        number = self._numbers.setdefault(trial_id, len(self._numbers))
        answer = native.ask(number)
        if answer is None:
            del self._numbers[trial_id]
            return None
        if answer is False:
            del self._numbers[trial_id]
            return self.FINISHED
        config: dict[str, Any] = self._space.decode(answer)[0]
        return config

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        metric = self._metric
        if isinstance(metric, str) and metric in result:
            self._alone().report(self._numbers[trial_id], float(result.get("training_iteration", 0)),
                                 float(result[metric]))

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        native = self._alone()
        number = self._numbers[trial_id]
        metrics = list(self._metric) if isinstance(self._metric, (list, tuple)) else [self._metric]
        if error or result is None or any(metric not in result for metric in metrics):
            native.fail(number)
        else:
            native.tell(number, [float(result[metric]) for metric in metrics])

    def get_state(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name not in ("_native", "_space")}
        state["_saved"] = self._native.save() if self._native is not None else None
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        saved = state.pop("_saved", None)
        self.__dict__.update(state)
        self._native = self._space = None
        if saved is not None:
            self._alone().load(saved)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_native", "_space")} | {
            "_native": None, "_space": None}


class ConcurrencyLimiter(Searcher):
    """At most `max_concurrent` trials of the searcher at a time; with `batch` the next ones wait for all of them."""

    def __init__(self, searcher: Searcher, max_concurrent: int, batch: bool = False) -> None:
        if not isinstance(max_concurrent, int) or max_concurrent <= 0:
            raise ValueError(f"ConcurrencyLimiter(max_concurrent={max_concurrent!r}): it must be 1 or more")
        super().__init__(searcher.metric, searcher.mode)
        self.searcher, self.max_concurrent, self.batch = searcher, max_concurrent, batch
        self.live_trials: set[str] = set()
        self.cached_results: dict[str, tuple[Any, bool]] = {}
        self.num_unfinished_live_trials = 0

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        return self.searcher.set_search_properties(metric, mode, config, **spec)

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if len(self.live_trials) >= self.max_concurrent:
            return None
        found = self.searcher.suggest(trial_id)
        if isinstance(found, dict):
            self.live_trials.add(trial_id)
            self.num_unfinished_live_trials = len(self.live_trials)
        return found

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.searcher.on_trial_result(trial_id, result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if trial_id not in self.live_trials:
            return
        if not self.batch:
            self.searcher.on_trial_complete(trial_id, result=result, error=error)
            self.live_trials.discard(trial_id)
            return
        self.cached_results[trial_id] = (result, error)
        self.num_unfinished_live_trials -= 1
        if self.num_unfinished_live_trials <= 0:
            for one, (kept, failed) in self.cached_results.items():
                self.searcher.on_trial_complete(one, result=kept, error=failed)
                self.live_trials.discard(one)
            self.cached_results = {}

    def on_pause(self, trial_id: str) -> None:
        self.searcher.on_pause(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        self.searcher.on_unpause(trial_id)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        self.max_concurrent = max_concurrent
        return True

    @property
    def metric(self) -> Any:
        return self.searcher.metric

    @property
    def mode(self) -> Any:
        return self.searcher.mode


class Repeater(Searcher):
    """Runs each configuration `repeat` times and gives the searcher the mean of its metric."""

    def __init__(self, searcher: Searcher, repeat: int = 1, set_index: bool = True) -> None:
        if repeat < 1:
            raise ValueError(f"Repeater(repeat={repeat}): it must be 1 or more")
        super().__init__(searcher.metric, searcher.mode)
        self.searcher, self.repeat, self._set_index = searcher, repeat, set_index
        self._groups: list[dict[str, Any]] = []
        self._group_of: dict[str, dict[str, Any]] = {}

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        self._metric, self._mode = metric or self._metric, mode or self._mode
        return self.searcher.set_search_properties(metric, mode, config, **spec)

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        group = self._groups[-1] if self._groups and len(self._groups[-1]["trials"]) < self.repeat else None
        if group is None:
            config = self.searcher.suggest(trial_id)
            if not isinstance(config, dict):
                return config
            group = {"id": trial_id, "config": config, "trials": [], "scores": []}
            self._groups.append(group)
        group["trials"].append(trial_id)
        self._group_of[trial_id] = group
        config = dict(group["config"])
        if self._set_index:
            config[TRIAL_INDEX] = len(group["trials"]) - 1
        return config

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        group = self._group_of.get(trial_id)
        if group is None:
            return
        score = (result or {}).get(self._metric)
        group["scores"].append(None if error or score is None else float(score))
        if len(group["scores"]) < self.repeat:
            return
        known = [value for value in group["scores"] if value is not None]
        if known:
            self.searcher.on_trial_complete(group["id"], result={self._metric: sum(known) / len(known)})
        else:
            self.searcher.on_trial_complete(group["id"], error=True)
