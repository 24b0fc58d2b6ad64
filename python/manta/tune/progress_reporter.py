"""What a run prints: one block that is redrawn in place on a terminal, lines in a pipe; and Ray's reporters."""
from __future__ import annotations

import math
import os
import shutil
import sys
import time
from typing import Any

from ._trial import Trial
from .stopper import lookup

__all__ = ["CLIReporter", "JupyterNotebookReporter", "ProgressReporter"]

_REDRAW_S = 0.5
_TABLE_S = 30.0
_ROWS = 20


def text_of(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return "–" if value is None else str(value)
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:  # a number of NumPy
        value = value.item()
    if isinstance(value, float):
        return "nan" if math.isnan(value) else f"{value:.4g}"
    return str(value)[:20]


def table(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


class ProgressReporter:
    """Ray's base class: `report` is called when `should_report` says so."""

    def setup(self, start_time: float | None = None, total_samples: int | None = None, metric: str | None = None,
              mode: str | None = None, **kwargs: Any) -> None:
        pass

    def should_report(self, trials: list[Trial], done: bool = False) -> bool:
        raise NotImplementedError(f"{type(self).__name__} has no method should_report")

    def report(self, trials: list[Trial], done: bool, *sys_info: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no method report")


class CLIReporter(ProgressReporter):
    """Prints a table of trials every `max_report_frequency` seconds."""

    def __init__(self, *, metric_columns: Any = None, parameter_columns: Any = None, max_progress_rows: int = 20,
                 max_error_rows: int = 20, max_column_length: int = 20, max_report_frequency: float = 5,
                 infer_limit: int = 3, print_intermediate_tables: bool | None = None, metric: str | None = None,
                 mode: str | None = None, sort_by_metric: bool = False, total_samples: int | None = None) -> None:
        self._metric_columns, self._parameter_columns = _columns(metric_columns), _columns(parameter_columns)
        self._max_rows, self._max_errors, self._max_length = max_progress_rows, max_error_rows, max_column_length
        self._frequency, self._infer_limit, self._sort = max_report_frequency, infer_limit, sort_by_metric
        self._metric, self._mode, self._total = metric, mode, total_samples
        self._intermediate = True if print_intermediate_tables is None else print_intermediate_tables
        self._last = 0.0

    def setup(self, start_time: float | None = None, total_samples: int | None = None, metric: str | None = None,
              mode: str | None = None, **kwargs: Any) -> None:
        self._metric, self._mode = self._metric or metric, self._mode or mode
        self._total = self._total or total_samples

    def add_metric_column(self, metric: str, representation: str | None = None) -> None:
        self._metric_columns = {**(self._metric_columns or {}), metric: representation or metric}

    def add_parameter_column(self, parameter: str, representation: str | None = None) -> None:
        self._parameter_columns = {**(self._parameter_columns or {}), parameter: representation or parameter}

    def should_report(self, trials: list[Trial], done: bool = False) -> bool:
        now = time.monotonic()
        if done or (self._intermediate and now - self._last >= self._frequency):
            self._last = now
            return True
        return False

    def report(self, trials: list[Trial], done: bool, *sys_info: Any) -> None:
        print("\n".join([*map(str, sys_info), *self.lines(trials)]), flush=True)

    def lines(self, trials: list[Trial]) -> list[str]:
        counts: dict[str, int] = {}
        for trial in trials:
            counts[trial.status] = counts.get(trial.status, 0) + 1
        total = f"/{self._total}" if self._total and self._total > 0 else ""
        head = f"Number of trials: {len(trials)}{total} ({', '.join(f'{n} {s}' for s, n in sorted(counts.items()))})"
        shown = list(trials)
        if self._sort and self._metric:
            sign = 1.0 if self._mode == "min" else -1.0
            shown.sort(key=lambda trial: _order(lookup(trial.last_result, str(self._metric)), sign))
        shown = shown[:self._max_rows]
        if not shown:
            return [head]
        inferred = list(shown[0].evaluated_params)[:self._infer_limit]
        parameters = self._parameter_columns or {key: key for key in inferred}
        metrics = self._metric_columns or self._inferred(shown)
        rows = [["Trial name", "status", *parameters.values(), *metrics.values()]]
        for trial in shown:
            cells = [text_of(lookup(trial.config, key)) for key in parameters]
            cells += [text_of(lookup(trial.last_result, key)) for key in metrics]
            rows.append([trial.name, trial.status, *(cell[:self._max_length] for cell in cells)])
        return [head, *table(rows)]

    def _inferred(self, trials: list[Trial]) -> dict[str, str]:
        out = {"training_iteration": "iter", "time_total_s": "total time (s)"}
        if self._metric:
            out[self._metric] = self._metric
        return out


class JupyterNotebookReporter(CLIReporter):
    """As CLIReporter; a cell's output is cleared before it is written again."""

    def __init__(self, *, overwrite: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._overwrite = overwrite

    def report(self, trials: list[Trial], done: bool, *sys_info: Any) -> None:
        display = sys.modules.get("IPython.display")
        if display is not None and self._overwrite:
            display.clear_output(wait=True)
        super().report(trials, done, *sys_info)


def _columns(given: Any) -> dict[str, str] | None:
    if given is None:
        return None
    return dict(given) if isinstance(given, dict) else {name: name for name in given}


def _order(value: Any, sign: float) -> float:
    return math.inf if value is None or math.isnan(value) else sign * float(value)


class Screen:
    """The run's own view."""

    def __init__(self, plan: Any) -> None:
        self._plan = plan
        verbose = plan.run_config.verbose
        self._verbose = 1 if verbose is None else verbose
        self._reporter = plan.run_config.progress_reporter
        self._terminal = sys.stdout.isatty()
        self._drawn = 0
        self._last = self._last_table = time.monotonic()
        self.results = 0
        self._results_before = 0
        self._rate = 0.0
        self._failed = self._early = 0
        self._recent: list[Trial] = []
        if self._reporter is not None:
            self._reporter.setup(start_time=time.time(), total_samples=plan.tune_config.num_samples,
                                 metric=plan.metric, mode=plan.mode)

    def note(self, text: str) -> None:
        if self._verbose:
            self._clear()
            print(f"tune: {text}", flush=True)

    def ended(self, trial: Trial) -> None:
        self._early += trial.stopped_early
        self._failed += trial.status == Trial.ERROR
        self._recent = [*self._recent[-4:], trial]
        if self._verbose and not self._terminal and self._reporter is None:
            print(self._line(trial), flush=True)
        if trial.status == Trial.ERROR and self._verbose and os.environ.get("TUNE_PRINT_ALL_TRIAL_ERRORS") == "1":
            self.note(f"trial {trial.number} failed:\n{trial.get_error()}")
        elif trial.status == Trial.ERROR and self._verbose and self._terminal:
            self.note(f"trial {trial.number} failed: {trial.error_text}  → {self._place(trial)}")

    def _place(self, trial: Trial) -> str:
        return os.path.join(os.path.basename(self._plan.folder), os.path.basename(trial.path), "error.txt")

    def _line(self, trial: Trial) -> str:
        metric = self._metric()
        parts = [f"trial {trial.number}", trial.status]
        if trial.status == Trial.ERROR:
            parts += [trial.error_text, f"→ {self._place(trial)}"]
        else:
            last = trial.last_result
            parts.append(f"iter {last.get('training_iteration', 0)}")
            if metric:
                parts.append(f"{metric} {text_of(lookup(last, metric))}")
            parts.append(f"{last.get('time_total_s', 0.0):.1f} s")
        parts.append(" ".join(f"{key}={text_of(value)}" for key, value in list(trial.evaluated_params.items())[:6]))
        return "  ".join(part for part in parts if part)

    def _metric(self) -> str | None:
        metric = self._plan.metric
        first = metric[0] if isinstance(metric, (list, tuple)) else metric
        return None if first is None else str(first)

    def tick(self, loop: Any) -> None:
        now = time.monotonic()
        if self._reporter is not None:
            if self._verbose and self._reporter.should_report(loop.trials, done=False):
                self._reporter.report(loop.trials, False)
            return
        if not self._verbose or now - self._last < _REDRAW_S:
            return
        self._rate = (self.results - self._results_before) / (now - self._last)
        self._results_before, self._last = self.results, now
        if self._terminal:
            self._clear()
            self._draw(self._block(loop))
        elif now - self._last_table >= _TABLE_S:
            self._last_table = now
            print("\n".join(self._block(loop)), flush=True)

    def _block(self, loop: Any) -> list[str]:
        pending, running, paused, terminated, failed, _, retries = loop.native.counts()
        seconds = int(loop.now())
        names = f"{type(self._plan.searcher).__name__} + {type(self._plan.scheduler).__name__}"
        lines = [f"{self._plan.name}  {seconds // 60:02d}:{seconds % 60:02d}  {names}   "
                 f"{pending + running + paused + terminated + failed} trials: {running} running, {paused} paused, "
                 f"{terminated - self._early} done, {self._early} stopped early, {failed} failed (retried {retries})"]
        best = loop.native.best()
        metric = self._metric()
        if best is not None and metric:
            trial = loop.trials[best]
            values = " ".join(f"{key}={text_of(value)}" for key, value in list(trial.evaluated_params.items())[:6])
            lines.append(f"best {metric} {text_of(lookup(trial.last_result, metric))}  trial {best}  {values}     "
                         f"{self._rate:.0f} results/s     {_home(self._plan.folder)}")
        shown = [loop.trials[number] for number in list(loop._slots)[:_ROWS]]
        shown += [trial for trial in self._recent if trial.status == Trial.ERROR]
        if shown:
            keys = list(shown[0].evaluated_params)[:5]
            rows = [["trial", "state", "iter", *([metric] if metric else []), *keys, "time"]]
            for trial in shown:
                last = trial._last_result or {}
                rows.append([str(trial.number), trial.status, str(last.get("training_iteration", 0)),
                             *([text_of(lookup(last, metric))] if metric else []),
                             *(text_of(trial.evaluated_params.get(key)) for key in keys),
                             f"{last.get('time_total_s', 0.0):.0f} s"])
            lines += table(rows)
        return lines

    def _draw(self, lines: list[str]) -> None:
        width = shutil.get_terminal_size().columns
        print("\n".join(line[:width] for line in lines), flush=True)
        self._drawn = len(lines)

    def _clear(self) -> None:
        if self._terminal and self._drawn:
            sys.stdout.write(f"\x1b[{self._drawn}A\x1b[J")
        self._drawn = 0

    def finish(self, loop: Any) -> None:
        if self._reporter is not None:
            if self._verbose and self._reporter.should_report(loop.trials, done=True):
                self._reporter.report(loop.trials, True)
        elif self._verbose and self._terminal and loop is not None:
            self._clear()
            self._draw(self._block(loop))


def _home(path: str) -> str:
    home = os.path.expanduser("~")
    return "~" + path[len(home):] if path.startswith(home + os.sep) else path
