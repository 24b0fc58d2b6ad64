"""wait: results as they come, a bound on what is under way, and work that is given up."""
import time

import manta


@manta.remote
def work(i):
    time.sleep(0.02 * (4 - i))
    return i


rest = [work.remote(i) for i in range(4)]
while rest:
    ready, rest = manta.wait(rest, num_returns=1)
    print("ready:", manta.get(ready[0]))

# At most ten under way: the next is started when one is done.
under_way, done = [], 0
for _ in range(40):
    if len(under_way) >= 10:
        ready, under_way = manta.wait(under_way)
        done += len(manta.get(ready))
    under_way.append(work.remote(3))
done += len(manta.get(under_way))
print("done:", done)

late = work.options(name="late").remote(-100)
ready, rest = manta.wait([late], timeout=0.1)
print("in time:", len(ready), "late:", len(rest))
manta.cancel(rest[0])
