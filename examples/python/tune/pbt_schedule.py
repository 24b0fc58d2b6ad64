"""Population based training finds a schedule of values that no fixed value can match.

A step brings the error down by its length, but a step that is long for the error makes it larger: long steps are needed
at first, and short ones later.
"""
import tempfile

from manta import tune
from manta.tune.schedulers import PopulationBasedTraining

STEPS = 80


def after(error, step):
    return error - step if step <= error / 2 else error + step / 10


class Descent(tune.Trainable):
    def setup(self, config):
        self.length, self.error = config["step"], 1.0

    def step(self):
        self.error = after(self.error, self.length)
        return {"error": self.error, "done": self.iteration + 1 >= STEPS}

    def save_checkpoint(self, folder):
        return {"error": self.error}

    def load_checkpoint(self, state):
        self.error = state["error"]

    def reset_config(self, config):  # so that a clone needs no new process
        self.length = config["step"]
        return True


def fixed(step):
    error = 1.0
    for _ in range(STEPS):
        error = after(error, step)
    return error


with tempfile.TemporaryDirectory() as folder:
    pbt = PopulationBasedTraining(time_attr="training_iteration", perturbation_interval=4, quantile_fraction=0.5,
                                  perturbation_factors=(1.5, 0.5),
                                  hyperparam_mutations={"step": tune.loguniform(1e-4, 0.5)})
    tuner = tune.Tuner(Descent, param_space={"step": tune.loguniform(1e-3, 0.5)},
                       tune_config=tune.TuneConfig(metric="error", mode="min", num_samples=4, seed=2, scheduler=pbt),
                       run_config=tune.RunConfig(storage_path=folder, verbose=0,
                                                 checkpoint_config=tune.CheckpointConfig(num_to_keep=2)))
    best = tuner.fit().get_best_result()
    print(f"the best fixed step leaves an error of {min(fixed(1e-4 * 1.02 ** n) for n in range(430)):.5f}")
    print(f"population based training leaves {best.metrics['error']:.5f}")
