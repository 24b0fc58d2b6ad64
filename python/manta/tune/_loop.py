"""The loop of a run: passes what happens to trials to the native controller and has its actions done."""
from __future__ import annotations

import os
import re
import shutil
import time
from collections import deque
from typing import Any

from .. import _runtime
from .._core import get as _get
from .._runtime import wait as _wait
from ..exceptions import ActorError, MantaError, TaskError
from ._adapters import PICKLED
from ._executor import Executor, Slot
from ._process import pickled_error
from ._resources import PlacementGroupFactory
from ._session import STACKS, Order
from ._trial import Trial, folder_name
from .error import TuneError

_USER_ERROR, _WORKER_LOST, _CHECKPOINT_LOST = 0, 1, 3  # manta::tune::FailureKind
_TICK_S = 0.5  # the longest time without a look at clocks and the screen
_STACKS_S = 0.5  # that a trial without a report has to write its stacks
_STOP_S = 2.0  # that a process has to leave the user's code after its trial was stopped
_STATE_S = 10.0  # between two files for people
_RESOURCES_S = 5.0


class Interrupt(BaseException):
    """Ctrl-C during a wait."""


class Loop:
    """One run. Only one thread calls it.

    `plan` (see _plan.Plan) holds the configurations, the native controller and the folder.
    """

    def __init__(self, plan: Any) -> None:
        self.plan = plan
        self.native = plan.native
        self.trials: list[Trial] = plan.trials
        self.callbacks = plan.callbacks
        self.executor = Executor(plan.trainable_ref, plan.is_class)
        self.reporter = plan.reporter
        self.iteration = 0
        self.end: tuple[str, str] | None = None  # (reason, text)
        self.interrupts = 0
        self.raised: BaseException | None = None
        self.started = time.monotonic() - plan.elapsed
        self._slots: dict[int, Slot] = {}
        self._function_running: set[int] = set()
        self._actions: deque[Any] = deque()
        self._later: list[tuple[Any, ...]] = []
        self._dirty: set[int] = set()
        self._waiting = False
        self._next_state = time.monotonic() + _STATE_S
        self._next_resources = 0.0
        self._next_look = 0.0

    # ---- what adapters ask ----

    def now(self) -> float:
        return float(time.monotonic() - self.started)

    def id_of(self, number: int) -> str:
        return self.plan.id_of(number)  # type: ignore[no-any-return]

    def trial_of(self, number: int) -> Trial:
        self.added(number)
        return self.trials[number]

    def result_of(self, number: int) -> dict[str, Any]:
        trial = self.trial_of(number)
        return self.plan.current_result.get(number) or trial.last_result

    def failed(self, number: int) -> bool:
        return bool(self.plan.failing == number)

    def later(self, event: tuple[Any, ...]) -> None:
        self._later.append(event)

    def added(self, number: int) -> None:
        """Makes the objects of trials up to this number."""
        while len(self.trials) <= number:
            self.trials.append(self.plan.make_trial(len(self.trials)))

    # ---- the loop ----

    def run(self) -> None:
        """Until the controller ends the run."""
        try:
            self.plan.begin(self)
            self.callbacks.call("setup", stop=self.plan.run_config.stop, num_samples=self.plan.tune_config.num_samples,
                                total_num_samples=self.plan.tune_config.num_samples)
            if self.plan.restored is not None:
                self._do(self.native.restored(self.now(), *self.plan.restored))
            self._look_at_resources()
            while self.end is None or self.executor.calls:
                self._step()
                if self.end is not None and not self._slots:
                    self.executor.end_idle()
        except BaseException:
            self.executor.end_all()
            raise
        finally:
            self._close()

    def _step(self) -> None:
        self.iteration += 1
        if self.callbacks.has("on_step_begin"):
            self.callbacks.call("on_step_begin", self.iteration, self.trials)
        self._wait_for_answers()
        if self._later:
            events, self._later = self._later, []
            for _, number in events:
                self._do(self.native.stop(self.now(), number))
        now = time.monotonic()
        self._look_for_hangs(now)
        if self.native.next_tick() <= self.now():
            self._do(self.native.tick(self.now()))
        stopper = self.plan.stopper
        if stopper is not None and self.end is None and stopper.stop_all():
            self._do(self.native.stop(self.now(), -1))
        if now >= self._next_resources:
            self._look_at_resources()
        if now >= self._next_look:
            self._next_look = now + _TICK_S
            self._look_for_orders()
        if now >= self._next_state:
            self._next_state = now + _STATE_S
            self.plan.write_state(self.trials)
        for number in self._dirty:
            self.native.flush(number)
        self._dirty.clear()
        self.reporter.tick(self)
        if self.callbacks.has("on_step_end"):
            self.callbacks.call("on_step_end", self.iteration, self.trials)

    def _wait_for_answers(self) -> None:
        calls = self.executor.calls
        if not calls:
            if self.end is None:
                self._pause()
            return
        limit = min(_TICK_S, max(0.0, self.native.next_tick() - self.now()))
        try:
            self._waiting = True
            if self.interrupts:
                self._interrupted()
            ready, _ = _wait(list(calls), num_returns=1, timeout=limit)
            self._waiting = False
        except Interrupt:
            self._waiting = False
            self._interrupted()
            return
        for ref in ready:
            slot = calls.pop(ref, None)
            if slot is not None:
                self._answered(slot, ref)

    def _pause(self) -> None:
        """Nothing runs: a retry waits for its time, or trials wait for resources."""
        limit = min(_TICK_S, max(0.001, self.native.next_tick() - self.now()))
        try:
            self._waiting = True
            if self.interrupts:
                self._interrupted()
            time.sleep(limit)
        except Interrupt:
            self._interrupted()
        finally:
            self._waiting = False

    def interrupt(self) -> None:
        """Called by the signal handler."""
        self.interrupts += 1
        if self.interrupts > 1:
            raise KeyboardInterrupt
        if self._waiting:
            self._waiting = False
            raise Interrupt

    def _interrupted(self) -> None:
        self._waiting = False
        if not self.plan.interrupted:
            self.plan.interrupted = True
            self.reporter.note("stopping: trials save their state (Ctrl-C again ends the run at once)")
            self._do(self.native.stop(self.now(), -1))

    def _look_at_resources(self) -> None:
        self._next_resources = time.monotonic() + _RESOURCES_S
        total = _runtime.cluster_resources()
        if total != self.plan.capacity:
            self.plan.capacity = dict(total)
            self._do(self.native.resources(self.now(), {key: float(value) for key, value in total.items()}))

    def _look_for_orders(self) -> None:
        """`manta tune stop` leaves a file with the numbers of trials; -1: all."""
        path = os.path.join(self.plan.folder, "stop")
        if not os.path.exists(path):
            return
        with open(path) as file:
            numbers = [int(line) for line in file if line.strip()]
        os.remove(path)
        for number in numbers:
            if number < len(self.trials) and self.end is None:
                self._do(self.native.stop(self.now(), number))

    def _close(self) -> None:
        for trial in self.trials:
            if not trial.is_finished():
                self.native.close_trial(trial.number)
        self.plan.finish(self)

    # ---- answers of processes ----

    def _answered(self, slot: Slot, ref: Any) -> None:
        call, number = slot.call, slot.number
        slot.call = ""
        try:
            answer = _get(ref)
        except (ActorError, MantaError, OSError) as error:
            self._lost(slot, call, error)
            return
        if call in ("stop", "finish"):
            self.executor.stopped(slot, bool(answer) and call == "stop" and self.plan.reuse)
            return
        trial = self.trials[number]
        if call == "save":
            self._saved(trial, answer)
        elif call == "clone" and answer is None:  # reset_config said no: a new process
            order = self.plan.orders.pop(number)
            self.executor.end(slot)
            self._slots[number] = self.executor.start(number, trial.placement_group_factory, order, False)
        elif call in ("start", "clone"):
            facts, batch = answer
            self.plan.orders.pop(number, None)
            trial.pid, trial.node_ip = facts[0], facts[2]
            self.native.begin_trial(number, {"pid": facts[0], "hostname": facts[1], "node_ip": facts[2]},
                                    self.plan.begun[number][0], self.plan.begun[number][1], self.plan.begun[number][2])
            self._batch(trial, batch, True)
        else:
            self._batch(trial, answer, False)

    def _batch(self, trial: Trial, batch: tuple[Any, ...], first: bool) -> None:
        number = trial.number
        results, times, saved, end = batch
        if end is not None:
            self._function_running.discard(number)
        if results:
            self._results(trial, results, times, saved, first)
        elif first:
            self._do(self.native.started(self.now(), number))
        if number not in self._slots or trial.status != Trial.RUNNING or self._slots[number].call:
            return  # it was stopped, or does something else now
        if end is None:
            self.executor.go_on(self._slots[number])
        elif end[0] == "error":
            self._failed(trial, *end[1:])
        else:
            self._do(self.native.finished(self.now(), number))

    def _results(self, trial: Trial, results: list[dict[str, Any]], times: list[float], saved: dict[int, str],
                 first: bool) -> None:
        number = trial.number
        names = {position: os.path.basename(folder) for position, folder in saved.items()}
        self.native.complete(number, results, times, names)
        stop_at, stop_all = self._user_stopper(trial, results)
        checkpoints = {}
        for position, folder in saved.items():
            result = results[position]
            checkpoints[position] = self._checkpoint_of(folder, result["training_iteration"], result["time_total_s"])
            trial.checkpoints.append((folder, result))
        self.plan.current_result[number] = results[-1]
        actions, logged = self.native.results(self.now(), number, first, results, checkpoints, stop_at, stop_all)
        self.plan.current_result.pop(number, None)
        self._dirty.add(number)
        watched = self.callbacks.has("on_trial_result")
        for position, is_new in enumerate(logged):
            if not is_new:
                continue
            trial._last_result = results[position]
            if watched:
                self.callbacks.call("on_trial_result", self.iteration, self.trials, trial, results[position])
            if position in saved:
                self._checkpointed(trial, saved[position])
        self.reporter.results += len(logged)
        self._do(actions)

    def _user_stopper(self, trial: Trial, results: list[dict[str, Any]]) -> tuple[int, bool]:
        stopper = self.plan.stopper
        if stopper is None:
            return -1, False
        for position, result in enumerate(results):
            if stopper(trial.trial_id, result):
                return position, bool(stopper.stop_all())
        return -1, False

    def _checkpoint_of(self, folder: str, iteration: int, time_total: float) -> tuple[str, int, int, float]:
        index = int(folder.rsplit("_", 1)[-1])
        return os.path.relpath(folder, self.plan.folder), index, iteration, time_total

    def _checkpointed(self, trial: Trial, folder: str) -> None:
        if self.callbacks.has("on_trial_save"):
            self.callbacks.call("on_trial_save", self.iteration, self.trials, trial)
        if self.callbacks.has("on_checkpoint"):
            self.callbacks.call("on_checkpoint", self.iteration, self.trials, trial, trial.checkpoint)

    def _saved(self, trial: Trial, folder: str) -> None:
        last = trial.last_result
        trial.checkpoints.append((folder, last))
        self._do(self.native.saved(self.now(), trial.number, self._checkpoint_of(
            folder, last.get("training_iteration", 0), last.get("time_total_s", 0.0))))
        self._checkpointed(trial, folder)

    # ---- failures ----

    def _failed(self, trial: Trial, short: str, text: str, pickled: bytes) -> None:
        trial.error_text, trial.pickled_error = short, pickled
        trial.num_failures += 1
        with open(os.path.join(trial.path, "error.txt"), "a") as file:
            file.write(f"Failure # {trial.num_failures} (occurred at {time.strftime('%Y-%m-%d_%H-%M-%S')})\n{text}\n")
        with open(os.path.join(trial.path, "error.pkl"), "wb") as binary:
            binary.write(pickled or pickled_error(TuneError(text)))
        if self.plan.run_config.failure_config.fail_fast == "raise":
            self.raised = self.raised or trial_error(pickled, text)
        self.plan.failing = trial.number
        self._do(self.native.failed(self.now(), trial.number, _USER_ERROR, short))
        self.plan.failing = -1

    def _lost(self, slot: Slot, call: str, error: BaseException) -> None:
        """The process of a trial is gone, or its call raised."""
        number = slot.number
        if self._slots.get(number) is not slot:  # it was stopped
            self.executor.end(slot)
            return
        trial = self.trials[number]
        self._function_running.discard(number)
        text = str(error)
        if isinstance(error, TaskError):
            self._failed(trial, text.strip().splitlines()[-1], text, b"")
            return
        if killed_from_outside(text):
            self.plan.failing = number
            self._do(self.native.failed(self.now(), number, _WORKER_LOST, crash_text(text)[0]))
            self.plan.failing = -1
            return
        self._failed(trial, *crash_text(text), b"")

    def _look_for_hangs(self, now: float) -> None:
        """A process that does not end its trial in time is killed. report_timeout_s: a trial that does not report in
        time has failed.
        """
        limit = self.plan.run_config.failure_config.report_timeout_s
        for ref, slot in list(self.executor.calls.items()):
            if slot.call in ("stop", "finish"):
                if now - slot.since > _STOP_S:
                    del self.executor.calls[ref]
                    self.executor.end(slot)
                continue
            if limit is None or slot.call not in ("start", "go_on", "clone") or now - slot.since < limit + _STACKS_S:
                continue
            del self.executor.calls[ref]
            trial = self.trials[slot.number]
            self._function_running.discard(slot.number)
            self.executor.end(slot)
            try:
                with open(os.path.join(trial.path, STACKS)) as file:
                    stacks = file.read()
            except FileNotFoundError:
                stacks = ""
            short = f"the trial did not report for {limit:g} s (report_timeout_s)"
            self._failed(trial, short, f"{short}; its stacks:\n{stacks}", b"")

    # ---- actions ----

    def _do(self, actions: list[Any]) -> None:
        """In order; those that an action causes come after the ones that were there before."""
        self._actions.extend(actions)
        if len(self._actions) > len(actions):
            return  # an outer call does them
        while self._actions:
            action = self._actions[0]
            getattr(self, f"_on_{action[0]}")(*action[1:])
            self._actions.popleft()

    def _on_start(self, number: int, flat: dict[str, Any], bundles: list[dict[str, float]], strategy: str,
                  checkpoint: Any, next_checkpoint: int) -> None:
        trial = self.trial_of(number)
        self._configure(trial, flat)
        trial.status = Trial.RUNNING
        trial.start_time = trial.start_time or time.time()
        trial.placement_group_factory = PlacementGroupFactory(bundles, strategy)
        self._make_folder(trial)
        order = self._order(trial, checkpoint, next_checkpoint)
        self._function_running.add(number)
        self._slots[number] = self.executor.start(number, trial.placement_group_factory, order, self.plan.reuse)
        if checkpoint is not None and self.callbacks.has("on_trial_restore"):
            self.callbacks.call("on_trial_restore", self.iteration, self.trials, trial)
        if self.callbacks.has("on_trial_start"):
            self.callbacks.call("on_trial_start", self.iteration, self.trials, trial)

    def _configure(self, trial: Trial, flat: dict[str, Any]) -> None:
        if PICKLED not in flat and flat != self.plan.flat.get(trial.number):  # a scheduler has changed it
            trial.config, trial.evaluated_params = self.plan.space.decode(flat)
            self.plan.flat[trial.number] = flat
            self.native.close_trial(trial.number)
            self.plan.opened.discard(trial.number)

    def _make_folder(self, trial: Trial) -> None:
        if not trial.path:
            trial.path = self.plan.trial_folder(trial)
        if trial.number in self.plan.opened:
            return
        os.makedirs(trial.path, exist_ok=True)
        self.plan.write_params(trial)
        self.plan.opened.add(trial.number)
        self.native.open_trial(trial.number, trial.path, trial.config,
                               {"trial_id": trial.trial_id, "experiment_tag": trial.experiment_tag})

    def _order(self, trial: Trial, checkpoint: Any, next_checkpoint: int) -> Order:
        order = self.plan.order_for(trial)
        order.next_checkpoint = next_checkpoint
        iteration, total = 0, 0.0
        if checkpoint is not None:
            path, _, iteration, total = checkpoint
            order.checkpoint = os.path.join(self.plan.folder, path)
        order.iteration, order.time_total = iteration, total
        self.plan.begun[trial.number] = (iteration, total, time.time())
        return order  # type: ignore[no-any-return]

    def _on_continue(self, number: int) -> None:
        slot = self._slots.get(number)
        if slot is not None and not slot.call:
            self.executor.go_on(slot)

    def _on_save(self, number: int) -> None:
        self.executor.save(self._slots[number])

    def _on_pause(self, number: int) -> None:
        self.trials[number].status = Trial.PAUSED
        if self.executor.is_class:
            slot = self._slots[number]
            if slot.call:  # it computes a step: a save waits for its turn
                for ref, other in list(self.executor.calls.items()):
                    if other is slot:
                        del self.executor.calls[ref]
            self.executor.save(slot)
        else:
            self._do(self.native.saved(self.now(), number, None))

    def _on_exploit(self, number: int, donor: int, flat: dict[str, Any], checkpoint: Any, next_checkpoint: int) -> None:
        trial = self.trials[number]
        slot = self._slots[number]
        self._configure(trial, flat)
        self._make_folder(trial)
        trial.status = Trial.RUNNING
        order = self._order(trial, checkpoint, next_checkpoint)
        if self.executor.is_class:
            self.plan.orders[number] = order
            self.executor.clone(slot, order)
            return
        self.executor.stop(slot, False, number in self._function_running)
        self._function_running.add(number)
        self._slots[number] = self.executor.start(number, trial.placement_group_factory, order, False)

    def _on_stop(self, number: int, keep: bool) -> None:
        slot = self._slots.pop(number, None)
        if slot is None:
            return
        running = number in self._function_running and not self.executor.is_class
        self._function_running.discard(number)
        for ref, other in list(self.executor.calls.items()) if slot.call else []:
            if other is slot:
                del self.executor.calls[ref]
        if self.end is not None or self.plan.interrupted:
            keep = False
        self.executor.stop(slot, keep, running)

    def _on_drop(self, number: int, path: str) -> None:
        folder = os.path.join(self.plan.folder, path)
        trial = self.trials[number]
        trial.checkpoints = [pair for pair in trial.checkpoints if pair[0] != folder]
        shutil.rmtree(folder, ignore_errors=True)

    def _on_policy(self, number: int, donor: int, text: str) -> None:
        self.plan.write_policy(self.trial_of(number), self.trial_of(donor), text)

    def _on_announce(self, number: int, kind: str, text: str) -> None:
        if kind == "new":
            self.added(number)
        elif kind == "warning":
            self.reporter.note(text)
        elif kind == "retry":
            trial = self.trials[number]
            trial.status = Trial.PENDING
            self.reporter.note(text.splitlines()[0])
            self.callbacks.call("on_trial_recover", self.iteration, self.trials, trial)
        elif kind == "paused":
            self.trials[number].status = Trial.PAUSED
        elif kind in ("terminated", "error"):
            self._ended(self.trials[number], kind, text)

    def _ended(self, trial: Trial, kind: str, text: str) -> None:
        trial.status = Trial.TERMINATED if kind == "terminated" else Trial.ERROR
        trial.stopped_early = kind == "terminated" and trial.number in self._function_running
        if kind == "error":
            trial.error_text = trial.error_text or text
        self.native.close_trial(trial.number)
        self.plan.opened.discard(trial.number)
        self._dirty.discard(trial.number)
        self.plan.flat.pop(trial.number, None)
        self.callbacks.call("on_trial_complete" if kind == "terminated" else "on_trial_error", self.iteration,
                            self.trials, trial)
        self.reporter.ended(trial)

    def _on_end(self, _: int, reason: str, text: str) -> None:
        self.end = (reason, text)


_DEATH = re.compile(r"worker \d+ (exited with status \d+|was killed by signal \d+ \(\w+\)[^;\n]*?|"
                    r"ran out of memory[^;\n]*)(?: while [^;\n]*)?;")
_ADVICE = "\nto look inside, "


def killed_from_outside(text: str) -> bool:
    """A process that got SIGKILL or SIGTERM, or whose node is gone, did not fail by itself."""
    if "memory" in text.splitlines()[0]:
        return False
    return "signal 9 " in text or "signal 15 " in text or "out of reach" in text


def crash_text(text: str) -> tuple[str, str]:
    """(one line, all) about a process that died: what ended it, and the last lines that it printed."""
    body = text.split(_ADVICE)[0]
    found = _DEATH.search(body)
    short = f"the process of the trial {found.group(1)}" if found else body.splitlines()[0]
    _, marker, lines = body.partition("its last lines:")
    return short, f"{short}; its last lines:{lines}" if marker else f"{short}; it had printed nothing"


def trial_error(pickled: bytes, text: str) -> BaseException:
    import pickle

    try:
        found = pickle.loads(pickled)
        if isinstance(found, BaseException):
            return found
    except Exception:
        pass
    return TuneError(text)


def trial_folder(plan: Any, trial: Trial) -> str:
    creator = plan.tune_config.trial_dirname_creator
    name = str(creator(trial)) if creator is not None else folder_name(trial.name, trial.experiment_tag, plan.date)
    return os.path.join(plan.folder, name)
