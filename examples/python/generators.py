"""A task that yields: its items are used while it runs, and it is never far ahead of its reader."""
import manta


@manta.remote(_generator_backpressure_num_objects=4)
def chunks(n):
    for i in range(n):
        yield [i] * 3


for ref in chunks.remote(5):
    print(manta.get(ref))


@manta.remote
class Reader:
    def lines(self, n):
        for i in range(n):
            yield f"line {i}"


reader = Reader.remote()
print([manta.get(ref) for ref in reader.lines.remote(3)])
