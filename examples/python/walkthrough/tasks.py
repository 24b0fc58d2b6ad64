"""Tasks: start, pass results on, several returns, options, cancel."""
import time

import manta


def plain():
    return 1


remote_plain = manta.remote(plain)  # a function that is there already
assert manta.get(remote_plain.remote()) == 1


@manta.remote
def slow(seconds=0.05):
    time.sleep(seconds)
    return seconds


begin = time.perf_counter()
manta.get([slow.remote() for _ in range(4)])
print(f"four naps side by side: under {0.05 * 4:.1f} s is", time.perf_counter() - begin < 5)


@manta.remote
def after(value, more):
    return value + more


first = after.remote(1, 1)
print("a result as argument:", manta.get(after.remote(first, 1)))


@manta.remote(num_returns=3)
def three():
    return 0, 1, 2


a, b, c = three.remote()
print("three returns:", manta.get([a, b, c]))

heavy = slow.options(num_cpus=2, name="heavy")
print("with options:", manta.get(heavy.remote(0)))

endless = slow.remote(60)
manta.cancel(endless)
try:
    manta.get(endless)
except manta.exceptions.TaskCancelledError:
    print("cancelled")
