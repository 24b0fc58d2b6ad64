"""What goes wrong, and how it is met: exceptions, crashes, retries, timeouts."""
import os
import time

import manta

manta.init()


@manta.remote
def parse(text):
    return int(text)


try:
    manta.get(parse.remote("seven"))
except ValueError as problem:  # the task's own class; the text is the remote traceback
    print("caught:", str(problem).splitlines()[-1])


@manta.remote(max_retries=0)
def crash():
    os._exit(3)


try:
    manta.get(crash.remote())
except manta.exceptions.WorkerCrashedError:
    print("the worker died, the program goes on")


@manta.remote(max_retries=3, retry_exceptions=[ConnectionError])
def flaky(counter):
    if manta.get(counter.next.remote()) < 3:
        raise ConnectionError("try again")
    return "third time lucky"


@manta.remote
class Counter:
    def __init__(self):
        self.value = 0

    def next(self):
        self.value += 1
        return self.value


print(manta.get(flaky.remote(Counter.remote())))


@manta.remote
def slow():
    time.sleep(30)


ref = slow.remote()
try:
    manta.get(ref, timeout=0.1)
except manta.exceptions.GetTimeoutError:
    manta.cancel(ref)
    print("too slow: cancelled")
