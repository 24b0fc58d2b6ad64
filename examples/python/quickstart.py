"""A tour: tasks, refs as arguments, wait, an actor, an error caught."""
import time

import manta

manta.init()


@manta.remote
def square(x):
    return x * x


@manta.remote
def add(a, b):
    return a + b


print("3² + 4² =", manta.get(add.remote(square.remote(3), square.remote(4))))


@manta.remote
def nap(seconds):
    time.sleep(seconds)
    return seconds


refs = [nap.remote(s) for s in (0.3, 0.1, 0.2)]
while refs:
    (first,), refs = manta.wait(refs)
    print("slept", manta.get(first))


@manta.remote
class Counter:
    def __init__(self):
        self.value = 0

    def add(self, by):
        self.value += by
        return self.value


counter = Counter.remote()
counter.add.remote(1)
print("counter =", manta.get(counter.add.remote(41)))


@manta.remote
def divide(a, b):
    return a / b


try:
    manta.get(divide.remote(1, 0))
except ZeroDivisionError as error:
    print("caught as itself:", type(error).__name__)
