"""Generators: items while the task runs, back-pressure, errors in the middle, async for."""
import asyncio

import manta


@manta.remote
def chunks(count):
    for i in range(count):
        yield [i] * 3


for ref in chunks.remote(3):
    print("chunk:", manta.get(ref))

# The writer is never more than two items ahead of the reader.
print("sum:", sum(manta.get(ref)[0] for ref in chunks.options(_generator_backpressure_num_objects=2).remote(10)))


@manta.remote
def breaks():
    yield "fine"
    raise ValueError("broken")


for ref in breaks.remote():
    try:
        print(manta.get(ref))
    except ValueError:
        print("then it broke")


@manta.remote
class Source:
    async def numbers(self, count):
        for i in range(count):
            await asyncio.sleep(0.001)
            yield i


async def read():
    return [await ref async for ref in Source.remote().numbers.remote(4)]


print("async:", asyncio.run(read()))
