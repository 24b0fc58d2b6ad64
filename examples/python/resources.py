"""What a task asks for: CPUs, fractions of them, and resources of one's own naming."""
import time

import manta

manta.init(num_cpus=2, resources={"license": 1})


@manta.remote(num_cpus=0.5)
def light():
    time.sleep(0.05)
    return time.time()


@manta.remote(num_cpus=0, resources={"license": 1})
def licensed():
    begin = time.time()
    time.sleep(0.1)
    return begin, time.time()


manta.get([light.remote() for _ in range(8)])
(a, b), (c, d) = manta.get([licensed.remote(), licensed.remote()])
print("one license, one at a time:", b <= c or d <= a)
print("the cluster has", manta.cluster_resources()["CPU"], "CPUs and", manta.cluster_resources()["license"], "license")
try:
    manta.get(light.options(num_cpus=100).remote())
except manta.exceptions.InfeasibleError as problem:
    print("refused:", str(problem).split(";")[0])
