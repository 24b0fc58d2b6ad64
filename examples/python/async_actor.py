"""An actor with coroutines: many calls under way at a time, on one thread; refs can be awaited."""
import asyncio

import manta


@manta.remote
def work(x):
    return x * 10


@manta.remote
class Desk:
    def __init__(self):
        self.open = asyncio.Event()

    async def wait_for_opening(self, name):
        await self.open.wait()
        return f"{name}: {await work.remote(len(name))}"

    async def begin(self):
        self.open.set()


desk = Desk.remote()
waiting = [desk.wait_for_opening.remote(name) for name in ("Ada", "Grace", "Barbara")]
desk.begin.remote()
print(manta.get(waiting))


async def main():
    return await asyncio.gather(*[work.remote(i) for i in range(3)])


print(asyncio.run(main()))
