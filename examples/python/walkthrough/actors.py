"""Actors: one object in its own process, called by many; threads, groups, restarts."""
import os
import time

import manta


@manta.remote
class Counter:
    def __init__(self, start=0):
        self.value = start

    def increment(self):
        self.value += 1
        return self.value


counters = [Counter.remote() for _ in range(3)]
print("each its own:", manta.get([counter.increment.remote() for counter in counters for _ in range(2)]))


@manta.remote
def increment_from_a_task(counter):
    return manta.get(counter.increment.remote())


print("by a task:", manta.get(increment_from_a_task.remote(counters[0])))


@manta.remote(concurrency_groups={"io": 2, "compute": 2})
class Mixed:
    @manta.method(concurrency_group="io")
    def read(self):
        time.sleep(0.05)
        return "read"

    @manta.method(concurrency_group="compute")
    def crunch(self):
        return sum(range(1000))

    def other(self):
        return "default"


mixed = Mixed.remote()
print(manta.get([mixed.read.remote(), mixed.crunch.remote(), mixed.other.remote()]))


@manta.remote(max_restarts=1, max_task_retries=1)
class Phoenix:
    def burn_once(self, path):
        if not os.path.exists(path):
            open(path, "w").close()
            os._exit(1)
        return "risen"


mark = f"/tmp/manta-phoenix-{os.getpid()}"
print(manta.get(Phoenix.remote().burn_once.remote(mark)))
os.remove(mark)
