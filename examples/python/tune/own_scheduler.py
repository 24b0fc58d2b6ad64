"""A scheduler of one's own: a trial ends when it is worse than the best trial at the same iteration by a margin."""
import tempfile

from manta import tune
from manta.tune.schedulers import FIFOScheduler, TrialScheduler


class Margin(FIFOScheduler):
    def __init__(self, margin):
        self.margin = margin
        self.best = {}

    def on_trial_result(self, tune_controller, trial, result):
        iteration, value = result["training_iteration"], result["accuracy"]
        best = self.best[iteration] = max(value, self.best.get(iteration, value))
        return TrialScheduler.STOP if value < best - self.margin else TrialScheduler.CONTINUE


def train(config):
    for step in range(10):
        tune.report({"accuracy": config["quality"] * (1 - 0.7 ** (step + 1))})


with tempfile.TemporaryDirectory() as folder:
    tuner = tune.Tuner(train, param_space={"quality": tune.grid_search([0.9, 0.5, 0.8, 0.3])},
                       tune_config=tune.TuneConfig(metric="accuracy", mode="max", scheduler=Margin(0.15)),
                       run_config=tune.RunConfig(storage_path=folder, verbose=0))
    for result in tuner.fit():
        print(f"quality {result.config['quality']}: {result.metrics['training_iteration']} iterations")
