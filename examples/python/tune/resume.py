"""A run whose driver is killed continues where it was."""
import os
import signal
import subprocess
import sys
import tempfile
import time

from manta import tune


def train(config):
    checkpoint = tune.get_checkpoint()
    start = 0
    if checkpoint:
        with checkpoint.as_directory() as folder, open(os.path.join(folder, "step")) as file:
            start = int(file.read())
    for step in range(start, 6):
        time.sleep(0.05)
        # In the trial's own folder: a killed process cannot clean up, and the folder is deleted with the run.
        with tempfile.TemporaryDirectory(dir=tune.get_context().get_trial_dir()) as folder:
            with open(os.path.join(folder, "step"), "w") as file:
                file.write(str(step + 1))
            tune.report({"loss": config["x"] / (step + 1)}, checkpoint=tune.Checkpoint.from_directory(folder))


def first_run(folder):
    tune.Tuner(train, param_space={"x": tune.uniform(1, 2)},
               tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=4, seed=1),
               run_config=tune.RunConfig(name="run", storage_path=folder, verbose=0)).fit()


def has_checkpoint(folder):
    return any(name.startswith("checkpoint_") for _, names, _ in os.walk(folder) for name in names)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        first_run(sys.argv[1])
        sys.exit()
    with tempfile.TemporaryDirectory() as folder:
        driver = subprocess.Popen([sys.executable, __file__, folder])
        while not has_checkpoint(folder):
            time.sleep(0.01)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        print("the driver was killed")
        grid = tune.Tuner.restore(os.path.join(folder, "run"), train).fit()
        print(f"{len(grid)} trials, the best loss is {grid.get_best_result().metrics['loss']:.3f}")
