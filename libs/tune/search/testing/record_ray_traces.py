"""Records the decisions of Ray Tune's schedulers on seeded events, one trace per line.

    pip install "ray[tune]==2.60.0" scikit-learn
    python record_ray_traces.py --count 2000 | tune_traces      # compares the traces with Manta's schedulers
    python record_ray_traces.py --header > ray_events.h         # the traces of the unit test

Ray's classes run without a cluster: a small object stands for Ray's controller. Where Ray draws random numbers, it gets
those of Manta's streams (Philox), so that also donors and perturbed values can be compared. traces.h describes a line.
"""

import argparse
import logging
import math
import random
import sys
import types

from ray.tune import PlacementGroupFactory
from ray.tune.experiment import Trial
from ray.tune.schedulers import (
    ASHAScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    ResourceChangingScheduler,
    TrialScheduler,
    pbt,
)
from ray.tune.schedulers.resource_changing_scheduler import DistributeResources, DistributeResourcesToTopJob
from ray.tune.search.sample import Domain

MASK = 0xFFFFFFFF
EXPLORE = 5  # Purpose::kExplore


class Stream:
    """Stream of random.h."""

    def __init__(self, seed, trial, purpose):
        self.counter = [0, purpose, trial & MASK, trial >> 32]
        self.key = [seed & MASK, (seed >> 32) & MASK]
        self.block = []

    def bits(self):
        if not self.block:
            c, key = list(self.counter), list(self.key)
            for _ in range(10):
                a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
                c = [(b >> 32) ^ c[1] ^ key[0], b & MASK, (a >> 32) ^ c[3] ^ key[1], a & MASK]
                key = [(key[0] + 0x9E3779B9) & MASK, (key[1] + 0xBB67AE85) & MASK]
            self.block = c
            self.counter[0] += 1
        return self.block.pop(0)

    def random(self):
        high = self.bits()
        return (((high << 32) | self.bits()) >> 11) * 2.0**-53

    def choice(self, values):
        n = len(values)
        while True:
            product = self.bits() * n
            if (product & MASK) >= (2**32 - n) % n:
                return values[product >> 32]


class Draws:
    """Stands for the random module inside Ray's PBT."""

    stream = None

    def random(self):
        return self.stream.random()

    def choice(self, values):
        return self.stream.choice(values)


draws = Draws()
pbt.random = draws


class EvenDomain(Domain):
    def __init__(self, low, high):
        self.low, self.high = low, high

    def sample(self, *_args, **_kwargs):
        return self.low + (self.high - self.low) * draws.random()


class MockTrial:
    def __init__(self, number, config):
        self.number = number
        self.trial_id = str(number)
        self.config = config
        self.evaluated_params = {}
        self.experiment_tag = str(number)
        self.status = Trial.PENDING
        self.is_saving = False
        self.last_result = {}
        self.iteration = 0
        self.checkpoint = "saved"
        self.temporary_state = types.SimpleNamespace(saving_to=None)
        config = types.SimpleNamespace(num_to_keep=None)
        self.run_metadata = types.SimpleNamespace(checkpoint_manager=types.SimpleNamespace(checkpoint_config=config))
        self.placement_group_factory = PlacementGroupFactory([{"CPU": 1}])

    def __repr__(self):
        return self.trial_id

    def is_finished(self):
        return self.status in (Trial.TERMINATED, Trial.ERROR)

    def set_experiment_tag(self, tag):
        pass

    def set_config(self, config):
        self.config = config

    def update_resources(self, resources):
        self.placement_group_factory = resources


class MockController:
    def __init__(self, scheduler):
        self.scheduler = scheduler
        self.trials = []
        self.search_alg = types.SimpleNamespace(
            searcher=types.SimpleNamespace(on_pause=lambda _: None, on_unpause=self.resumed)
        )
        self._resource_updater = types.SimpleNamespace(get_num_cpus=lambda: self.cpus, get_num_gpus=lambda: 0)
        self.cpus = 0
        self.saved = None
        self.orders = ""

    def resumed(self, trial_id):
        self.orders += "~" + trial_id

    def get_trials(self):
        return self.trials

    def get_live_trials(self):
        return [t for t in self.trials if not t.is_finished()]

    def stop_trial(self, trial):
        if trial.is_finished():
            return
        if trial.status == Trial.RUNNING:
            self.scheduler.on_trial_complete(self, trial, trial.last_result)
        else:
            self.orders += "!" + trial.trial_id
            self.scheduler.on_trial_remove(self, trial)
        trial.status = Trial.TERMINATED

    def pause_trial(self, trial, should_checkpoint=True):
        trial.status = Trial.PAUSED

    def _schedule_trial_save(self, trial, result=None):
        self.saved = trial
        return "saved"


def number(x):
    return f"{x:.12g}"


def text(config):
    def one(value):
        return value if isinstance(value, str) else str(value) if isinstance(value, int) else number(value)

    return "{" + ",".join(f"{key}={one(config[key])}" for key in sorted(config)) + "}"


def bundles(factory):
    parts = [";".join(f"{k}={number(b[k])}" for k in sorted(b) if b[k]) for b in factory.bundles]
    return "[" + "|".join(parts) + "]"


class UnblockedHyperBand(HyperBandScheduler):
    """Ray's scheduler where the removal of a trial looks at its bracket also after the first halving."""

    def _unpause_trial(self, controller, trial):
        controller.resumed(trial.trial_id)

    def on_trial_remove(self, controller, trial):
        bracket, _ = self._trial_info[trial]
        if trial not in bracket._live_trials:
            return
        nested = bracket.is_being_processed and getattr(bracket, "nested", False)
        bracket.cleanup_trial(trial)
        if nested or bracket.finished() or (bracket.is_being_processed and not bracket._live_trials):
            return
        self._process_bracket(controller, bracket)

    def _process_bracket(self, controller, bracket):
        bracket.nested = True
        action = HyperBandScheduler._process_bracket(self, controller, bracket)
        bracket.nested = False
        return action


class UnblockedBohb(HyperBandForBOHB):
    on_trial_remove = UnblockedHyperBand.on_trial_remove
    _process_bracket = UnblockedHyperBand._process_bracket


class RaysHyperBand(HyperBandScheduler):
    def _unpause_trial(self, controller, trial):
        controller.resumed(trial.trial_id)


class RecordedPbt(PopulationBasedTraining):
    """Ray's PBT with the random numbers of Manta's streams; it shows who clones whom."""

    def __init__(self, seed, **options):
        super().__init__(**options)
        self.seed, self.explored, self.exploits = seed, {}, {}

    def _checkpoint_or_exploit(self, trial, controller, upper, lower):
        if trial in lower:
            n = self.explored.get(trial, 0)
            self.explored[trial] = n + 1
            draws.stream = Stream((self.seed + n * 0x9E3779B97F4A7C15) % 2**64, trial.number, EXPLORE)
        super()._checkpoint_or_exploit(trial, controller, upper, lower)

    def on_trial_error(self, controller, trial):
        self.removed(controller, trial)

    def on_trial_complete(self, controller, trial, result):
        self.removed(controller, trial)

    def removed(self, controller, trial):
        """What Ray does when the last trial reports, also when the last trial that the others wait for ends."""
        trial.status = Trial.TERMINATED
        live = controller.get_live_trials()
        times = [self._trial_state[t].last_train_time for t in live]
        if not self._synch or not live or min(times) < self._next_perturbation_sync:
            return
        lower, upper = self._quantiles()
        for t in upper + [t for t in live if t not in lower + upper] + lower:
            self._trial_state[t].last_perturbation_time = max(times)
            self._checkpoint_or_exploit(t, controller, upper, lower)
        times = [self._trial_state[t].last_train_time for t in controller.get_trials()]
        self._next_perturbation_sync = max(self._next_perturbation_sync + self._perturbation_interval, max(times))

    def _log_config_on_step(self, state, new_state, trial, donor, config):
        steps = [t.last_result.get("training_iteration", 0) for t in (trial, donor)]
        self.exploits[trial] = f"{donor}@{steps[0]}/{steps[1]}{text(config)}"
        trial.iteration = donor.iteration


def make(kind, rng):
    """A scheduler with random options, and the options as text."""
    mode = rng.choice(["min", "max"])
    common = {"metric": "m", "mode": mode}
    if kind == "asha":
        options = {
            "max_t": rng.choice([9, 16, 20, 27]),
            "grace_period": rng.choice([1, 1, 2, 3]),
            "reduction_factor": rng.choice([2, 3, 4]),
            "stop_last_trials": rng.random() < 0.7,
        }
        return ASHAScheduler(**common, **options), options
    if kind == "median":
        options = {
            "grace_period": rng.choice([0, 1, 3]),
            "min_samples_required": rng.choice([1, 2, 3]),
            "min_time_slice": rng.choice([0, 2]),
            "hard_stop": rng.random() < 0.6,
        }
        return MedianStoppingRule(time_attr="training_iteration", **common, **options), options
    if kind in ("hyperband", "hyperband_errors", "bohb", "bohb_errors"):
        options = {
            "max_t": rng.choice([4, 9, 10, 16, 27]),
            "reduction_factor": rng.choice([2, 3, 4]),
            "stop_last_trials": rng.random() < 0.7,
        }
        classes = {
            "hyperband": RaysHyperBand,
            "hyperband_errors": UnblockedHyperBand,
            "bohb": HyperBandForBOHB,
            "bohb_errors": UnblockedBohb,
        }
        return classes[kind](**common, **options), options
    if kind in ("pbt", "pbt_synch"):
        interval = rng.choice([1, 2, 3, 4])
        options = {
            "perturbation_interval": interval,
            "burn_in_period": rng.choice([0, 0, 3, 5]),
            "quantile_fraction": rng.choice([0.1, 0.25, 0.25, 0.5, 0]),
            "resample_probability": rng.choice([0, 0.25, 1]),
            "synch": kind == "pbt_synch",
        }
        mutations = {"act": ["elu", "relu", "tanh"], "batch": EvenDomain(8, 64), "lr": EvenDomain(0.001, 0.5)}
        seed = rng.randrange(2**40)
        scheduler = RecordedPbt(
            seed, time_attr="training_iteration", hyperparam_mutations=mutations, **common, **options
        )
        return scheduler, {**options, "seed": seed}
    if kind == "resources":
        options = {
            "add_bundles": rng.random() < 0.5,
            "increase_by": rng.choice([0, 1, 2]),
            "increase_by_times": rng.choice([-1, 1, 3]),
            "reserve": rng.choice([0, 1, 3]),
            "top": rng.random() < 0.5,
            "cpus": rng.choice([2, 4, 7, 16]),
        }
        arguments = {
            "add_bundles": options["add_bundles"],
            "increase_by": {"CPU": options["increase_by"]} if options["increase_by"] else None,
            "increase_by_times": options["increase_by_times"],
            "reserve_resources": {"CPU": options["reserve"]},
        }
        if options["top"]:
            function = DistributeResourcesToTopJob(**arguments, **common)
        else:
            function = DistributeResources(**arguments)
        base = ASHAScheduler(max_t=20, grace_period=2, reduction_factor=3, **common)
        scheduler = ResourceChangingScheduler(base, function)
        scheduler.set_search_properties(None, None)
        return scheduler, options
    raise ValueError(kind)


class Run:
    def __init__(self, kind, seed):
        self.rng = random.Random(f"{kind} {seed}")
        self.kind = kind
        self.scheduler, options = make(kind, self.rng)
        self.controller = MockController(self.scheduler)
        self.controller.cpus = options.get("cpus", 0)
        mode = getattr(self.scheduler, "_mode", None) or self.scheduler._base_scheduler._mode
        texts = [f"mode={mode}"] + [f"{k}={number(v)}" for k, v in options.items() if k != "seed"]
        self.line = " ".join([kind, *texts] + [f"seed={options['seed']}" for _ in range("seed" in options)]) + " |"
        self.errors = kind not in ("hyperband", "bohb")
        self.digits = self.rng.choice([1, 2, 4])
        self.quality = {}

    def add(self):
        trial = MockTrial(len(self.controller.trials), {"act": "relu", "batch": 16, "lr": self.rng.uniform(0.001, 0.5)})
        trial.config["lr"] = float(number(trial.config["lr"]))
        self.quality[trial] = self.rng.random()
        self.line += f" a{trial}" + (text(trial.config) if "pbt" in self.kind else "")
        self.controller.trials.append(trial)
        self.scheduler.on_trial_add(self.controller, trial)

    def outcome(self, letter, trial=None):
        controller, text = self.controller, letter
        if controller.saved is not None and controller.saved is trial:
            text += "+"
        exploits = getattr(self.scheduler, "exploits", {})
        if trial in exploits:
            text += exploits.pop(trial)
        to_change = getattr(self.scheduler, "_trials_to_reallocate", {})
        if letter == "P" and trial in to_change:
            text += bundles(to_change[trial])
        orders = controller.orders + "".join(f"x{t}<{exploits[t]}" for t in exploits)
        exploits.clear()
        controller.orders, controller.saved = "", None
        return text + orders

    def result(self, trial):
        trial.iteration += 1
        value = self.quality[trial] + self.rng.gauss(0, 0.3) / (trial.iteration + 1)
        value = float(f"{value:.{self.digits}f}") + 0.0
        if self.kind in ("asha", "pbt", "pbt_synch") and self.rng.random() < 0.02:
            value = math.nan
        result = {"training_iteration": trial.iteration, "m": value}
        decision = self.scheduler.on_trial_result(self.controller, trial, result)
        trial.last_result = result
        letter = {"CONTINUE": "C", "PAUSE": "P", "STOP": "S", "NOOP": "X"}[decision]
        self.line += f" r{trial}:{result['training_iteration']}:{number(value)}:{self.outcome(letter, trial)}"
        if decision == TrialScheduler.PAUSE:
            trial.status = Trial.PAUSED
        elif decision == TrialScheduler.STOP:
            self.controller.stop_trial(trial)

    def end(self, trial, letter):
        if letter == "e":
            self.scheduler.on_trial_error(self.controller, trial)
            trial.status = Trial.ERROR
        else:
            self.controller.stop_trial(trial)
        self.line += f" {letter}{trial}:{self.outcome('')}"

    def start(self, slots):
        while sum(t.status == Trial.RUNNING for t in self.controller.trials) < slots:
            chosen = self.scheduler.choose_trial_to_run(self.controller)
            token = f" c{'-' if chosen is None else chosen}:{self.outcome('')}"
            if not self.line.endswith(" c-:") or token != " c-:":
                self.line += token
            if chosen is None:
                break
            assert chosen.status in (Trial.PENDING, Trial.PAUSED)
            chosen.status = Trial.RUNNING

    def run(self, steps):
        rng = self.rng
        total, slots = rng.randint(4, 16), rng.choice([1, 2, 3, 8, 20])
        for _ in range(rng.choice([total, max(1, total // 2)])):
            self.add()
        for _ in range(steps):
            if len(self.controller.trials) < total and rng.random() < 0.1:
                self.add()
            self.start(slots)
            running = [t for t in self.controller.trials if t.status == Trial.RUNNING]
            if not running:
                if len(self.controller.trials) == total:
                    break
                continue
            trial = rng.choice(running)
            event = rng.random()
            if self.errors and event < 0.01:
                self.end(trial, "e")
            elif self.errors and event < 0.02 and trial.last_result:
                self.end(trial, "d")
            elif trial.iteration >= 30:
                if trial.last_result:
                    self.end(trial, "d")
            else:
                self.result(trial)
        return self.line


KINDS = [
    "asha",
    "median",
    "hyperband",
    "hyperband_errors",
    "bohb",
    "bohb_errors",
    "pbt",
    "pbt_synch",
    "resources",
]


def header():
    origin = "// Decisions of Ray Tune 2.60 on seeded events, by testing/record_ray_traces.py."
    print(f"{origin} traces.h describes the format.")
    print("#pragma once\n\nnamespace manta::tune {\n\ninline constexpr const char* kRayEvents[] = {")
    for kind in KINDS[2:]:
        for seed in range(3):
            line = Run(kind, seed).run(90)
            parts = [line[i : i + 104] for i in range(0, len(line), 104)]
            print("    " + "\n    ".join(f'"{part}"' for part in parts) + ",")
    print("};\n\n}  // namespace manta::tune")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="traces for each scheduler")
    parser.add_argument("--kind", choices=KINDS, help="only this scheduler")
    parser.add_argument("--seed", type=int, default=0, help="of the first trace")
    parser.add_argument("--header", action="store_true", help="print the header of the unit test")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if options.header:
        header()
        return
    for kind in [options.kind] if options.kind else KINDS:
        for seed in range(options.seed, options.seed + options.count):
            print(Run(kind, seed).run(400))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
