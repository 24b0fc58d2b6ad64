"""Async actors: many calls at a time on one event loop; refs are awaited; threads where there is no async."""
import asyncio
import time

import manta


@manta.remote
class Waiter:
    def __init__(self):
        self.most = self.now = 0

    async def serve(self):
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.02)
        self.now -= 1

    async def seen(self):
        return self.most

    async def sum_of(self, refs):
        return sum(await asyncio.gather(*refs))


waiter = Waiter.options(max_concurrency=50).remote()
manta.get([waiter.serve.remote() for _ in range(100)])
print("at a time:", manta.get(waiter.seen.remote()) <= 50)
print("awaited inside:", manta.get(waiter.sum_of.remote([manta.put(i) for i in range(5)])))


async def main():
    return await waiter.sum_of.remote([manta.put(1)]), await asyncio.wait_for(waiter.seen.remote(), 30) > 0


print("awaited outside:", asyncio.run(main()))


@manta.remote(max_concurrency=4)
class Threaded:
    def nap(self):
        time.sleep(0.05)
        return 1


threaded = Threaded.remote()
begin = time.perf_counter()
print("threads:", sum(manta.get([threaded.nap.remote() for _ in range(8)])), time.perf_counter() - begin < 5)
