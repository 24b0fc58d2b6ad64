"""Tuner: runs trials and gives their results, under Ray's names."""
from __future__ import annotations

import copy
import os
import signal
import sys
import threading
from typing import Any

from .. import _runtime
from . import _restore
from ._config import ResumeConfig, RunConfig, TuneConfig, check_environment
from ._loop import Loop
from ._plan import JOURNAL, TRAINABLE, Plan
from .error import TuneError, suggestion
from .progress_reporter import Screen
from .registry import get_trainable_cls
from .result_grid import ResultGrid

__all__ = ["Tuner"]


class Tuner:
    """``Tuner(train, param_space={...}, tune_config=TuneConfig(...)).fit()``"""

    def __init__(self, trainable: Any = None, *, param_space: dict[str, Any] | None = None,
                 tune_config: TuneConfig | None = None, run_config: RunConfig | None = None, **others: Any) -> None:
        for name in others:
            known = ("trainable", "param_space", "tune_config", "run_config")
            raise TypeError(f"Tuner has no option {name!r}.{suggestion(name, known)}")
        if trainable is None:
            raise ValueError("Tuner needs a trainable: a function of the configuration, a Trainable class or a "
                             "registered name")
        if isinstance(trainable, str):
            trainable = get_trainable_cls(trainable)
        for given, kind, name in ((tune_config, TuneConfig, "tune_config"), (run_config, RunConfig, "run_config")):
            if given is not None and not isinstance(given, kind):
                raise ValueError(f"Tuner({name}={given!r}): it must be a {kind.__name__}")
        if callable(param_space) and not isinstance(param_space, dict):
            raise ValueError("Tuner(param_space=...): a define-by-run function belongs into the searcher: "
                             "OptunaSearch(space=function)")
        self._trainable, self._space = trainable, param_space
        self._tune_config, self._run_config = tune_config or TuneConfig(), run_config or RunConfig()
        self._folder: str | None = None
        self._resume: ResumeConfig | None = None
        self._more = 0
        self._results: ResultGrid | None = None
        self._analysis: Any = None
        self._plan: Plan | None = self._new_plan()

    def _new_plan(self) -> Plan:
        # The user's searcher, scheduler and callbacks are used as they are; a second fit starts with fresh ones.
        return Plan(self._trainable, self._space, copy.copy(self._tune_config), copy.copy(self._run_config))

    # ---- a run ----

    def fit(self) -> ResultGrid:
        """Runs the trials. A failed trial is in `errors` of the result."""
        loop = self._run()
        if loop.raised is not None:
            raise loop.raised
        assert self._results is not None
        return self._results

    def _run(self) -> Loop:
        plan = self._plan or self._new_plan()
        self._plan = None
        restored = self._folder is not None
        for line in check_environment():
            print(f"tune: {line}", file=sys.stderr)
        if not _runtime.is_initialized():
            _runtime.init()
        plan.check_resources()
        if restored:
            self._restore_into(plan)
        else:
            plan.create()
        plan.reporter = Screen(plan)
        plan.trainable_ref = _runtime.put(plan.trainable)
        loop = Loop(plan)
        with _Interrupts(loop):
            loop.run()
        self._results = ResultGrid(plan.trials, plan.folder, plan.metric, plan.mode)
        self._folder = None
        plan.callbacks.call("on_experiment_end", plan.trials)
        if plan.interrupted:
            print(f"interrupted; the state of the run is complete. Continue it with: manta tune resume {plan.folder}",
                  flush=True)
            raise SystemExit(130)
        assert loop.end is not None
        reason, text = loop.end
        if reason in ("bad_metric", "broken"):
            raise (ValueError if reason == "bad_metric" else TuneError)(text)
        return loop

    def _restore_into(self, plan: Plan) -> None:
        assert self._folder is not None and self._resume is not None
        facts = _restore.load_facts(self._folder)
        plan.folder, plan.name = self._folder, os.path.basename(self._folder)
        plan.run_id, plan.date, plan.seed = facts["run_id"], facts["date"], facts["seed"]
        plan.extra = facts["extra"] + self._more
        plan.pickled = plan.pickle_trainable()
        plan.build()
        adapter = getattr(plan, "adapter", None)
        plan.loop = _Replayed(plan)
        if adapter is not None:
            adapter.replaying = True
            adapter.load_state()
        plan.elapsed = plan.native.restore(os.path.join(plan.folder, JOURNAL), plan.description(), plan.disk_full)
        if adapter is not None:
            adapter.replaying = False
        plan.trials.clear()
        _restore.rebuild_trials(plan)
        _restore.repair(plan)
        plan.restored = (self._resume.unfinished != "skip", self._resume.errored == "resume",
                         self._resume.errored == "restart", self._more)
        plan.store()

    # ---- restore ----

    @classmethod
    def restore(cls, path: str | os.PathLike[str], trainable: Any = None, resume_unfinished: bool = True,
                resume_errored: bool = False, restart_errored: bool = False, param_space: dict[str, Any] | None = None,
                storage_filesystem: Any = None, _resume_config: ResumeConfig | None = None, *,
                num_samples: int = 0) -> Tuner:
        """A Tuner that continues the run in this folder. `num_samples` adds so many samples."""
        folder = _restore.run_folder(path)
        if not _restore.can_restore(folder):
            raise ValueError(f"Tuner.restore({os.fspath(path)!r}): {folder} is not the folder of a run (it has no "
                             "journal). `manta tune ls` lists the runs")
        if num_samples < 0:
            raise ValueError(f"Tuner.restore(num_samples={num_samples}): it is the number of samples to add: 0 or more")
        facts = _restore.load_facts(folder)
        if isinstance(trainable, str):
            trainable = get_trainable_cls(trainable)
        if trainable is None:
            trainable = load_trainable(folder)
        resume = _resume_config or ResumeConfig(
            unfinished="resume" if resume_unfinished else "skip",
            errored="restart" if restart_errored else "resume" if resume_errored else "skip")
        made = cls(trainable, param_space=param_space if param_space is not None else facts["param_space"],
                   tune_config=facts["tune_config"], run_config=facts["run_config"])
        made._folder, made._resume, made._more = folder, resume, num_samples
        return made

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> bool:
        return _restore.can_restore(path)

    def get_results(self) -> ResultGrid:
        """The results of the last fit, or those of the run that was restored."""
        if self._results is not None:
            return self._results
        if self._folder is None:
            raise RuntimeError("there are no results: call fit() first, or Tuner.restore(path, trainable)")
        trials, metric, mode = _restore.load_trials(self._folder)
        return ResultGrid(trials, self._folder, metric, mode)


class _Replayed:
    """What adapters ask while the journal is replayed: results are read from the files."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.trials, self.native = plan.trials, plan.native
        self.searcher = plan.searcher

    def id_of(self, number: int) -> str:
        return self._plan.id_of(number)

    def added(self, number: int) -> None:
        while len(self.trials) <= number:
            trial = self._plan.make_trial(len(self.trials))
            trial.path = self._plan.trial_folder(trial)
            self.trials.append(trial)

    def trial_of(self, number: int) -> Any:
        self.added(number)
        return self.trials[number]

    def result_of(self, number: int) -> dict[str, Any]:
        return dict(self.native.trial(number)[4])

    def failed(self, number: int) -> bool:
        return bool(self.native.trial(number)[0] == "ERROR")

    def later(self, event: Any) -> None:
        pass


class _Interrupts:
    """Ctrl-C goes to the run while it lasts."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._before: Any = None

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, lambda *_: self._loop.interrupt())

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if kind is KeyboardInterrupt:
            raise SystemExit(130) from None


def load_trainable(folder: str) -> Any:
    import pickle

    with open(os.path.join(folder, TRAINABLE), "rb") as file:
        return pickle.load(file)
