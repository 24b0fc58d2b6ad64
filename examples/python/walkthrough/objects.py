"""Objects: put, get, pass by reference, read in place, Refs inside values."""
import numpy

import manta

array = manta.put(numpy.arange(1_000_000.0))


@manta.remote
def mean(values):
    assert not values.flags.writeable  # it looks at shared memory: copy it to change it
    return float(values.mean())


print("read by two tasks, stored once:", manta.get([mean.remote(array), mean.remote(array)]))


@manta.remote
def look(box):
    # A Ref inside a value stays a Ref: the task decides whether it wants what it names.
    return type(box["ref"]).__name__, manta.get(box["ref"])


print(manta.get(look.remote({"ref": manta.put("inside")})))


@manta.remote
def make():
    return manta.put("made by a task")


print(manta.get(manta.get(make.remote())))
