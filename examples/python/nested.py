"""Tasks that start tasks: a sum of squares by halves, and Refs that are passed on without being read."""
import manta

manta.init()


@manta.remote
def total(begin, end):
    if end - begin <= 250:
        return sum(i * i for i in range(begin, end))
    middle = (begin + end) // 2
    return sum(manta.get([total.remote(begin, middle), total.remote(middle, end)]))


print("sum of squares:", manta.get(total.remote(0, 2000)))


@manta.remote
def make():
    return [manta.put(i) for i in range(3)]  # Refs inside a value stay Refs


@manta.remote
def count(refs):
    return sum(manta.get(refs))


print("passed on:", manta.get(count.remote(make.remote())))
