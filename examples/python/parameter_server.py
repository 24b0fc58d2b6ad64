"""A parameter server: workers send gradients to an actor, in the way of Ray's walkthrough."""
import numpy as np

import manta


@manta.remote
class ParameterServer:
    def __init__(self, size):
        self.weights = np.zeros(size)

    def apply(self, *gradients):
        self.weights = self.weights - 0.1 * sum(gradients)
        return self.weights


@manta.remote
def gradient(weights, target):
    return weights - target


target = np.linspace(0, 1, 10_000)
server = ParameterServer.remote(target.size)
weights = server.apply.remote()
for _ in range(30):
    weights = server.apply.remote(*[gradient.remote(weights, target) for _ in range(4)])
error = float(np.abs(manta.get(weights) - target).max())
print("error below 1e-3:", error < 1e-3)
assert error < 1e-3
