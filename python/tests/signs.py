"""Files with which tests and their tasks tell each other how far they are: nothing here depends on how fast the
machine is. The limits are for a test that is wrong.
"""
import os
import time

LIMIT = 100


def give(path):
    open(path, "a").close()


def given(path):
    return os.path.exists(path)


def wait(path):
    """False: it was not given in time."""
    deadline = time.time() + LIMIT
    while not given(path) and time.time() < deadline:
        time.sleep(0.005)
    return given(path)


def meet(folder, count):
    """In `count` tasks: True if all of them ran at the same time."""
    with open(os.path.join(folder, f"{os.getpid()}.{time.monotonic_ns()}"), "w"):
        pass
    deadline = time.time() + LIMIT
    while len(os.listdir(folder)) < count and time.time() < deadline:
        time.sleep(0.005)
    return len(os.listdir(folder)) >= count
