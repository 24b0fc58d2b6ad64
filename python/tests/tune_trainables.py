"""Trainables of the tests: a worker imports this module, and nothing that takes long."""
import os

from manta import tune


def square(config):
    tune.report({"loss": (config["x"] - 3) ** 2})


def steps(config):
    for number in range(config.get("n", 5)):
        tune.report({"value": config["x"] * (number + 1)})


class Counter(tune.Trainable):
    def setup(self, config):
        self.x, self.n = config["x"], 0

    def step(self):
        self.n += 1
        return {"value": self.x * self.n, "pid_of_step": os.getpid(), "done": self.n >= 4}

    def save_checkpoint(self, folder):
        return {"n": self.n}

    def load_checkpoint(self, state):
        self.n = state["n"]

    def reset_config(self, config):
        self.x, self.n = config["x"], 0
        return True


class Growing(tune.Trainable):
    """Adds x in each of nine steps."""

    def setup(self, config):
        self.x, self.value = config["x"], 0

    def step(self):
        self.value += self.x
        return {"value": self.value, "done": self.iteration >= 8}

    def save_checkpoint(self, folder):
        return {"value": self.value}

    def load_checkpoint(self, state):
        self.value = state["value"]

    def reset_config(self, config):
        self.x = config["x"]
        return True
