"""A large array is stored once and read in place by every task."""
import numpy as np

import manta

array = np.arange(2_000_000, dtype=np.float64)
ref = manta.put(array)


@manta.remote
def part(a, begin, end):
    assert not a.flags.writeable  # it is everybody's
    return float(a[begin:end].sum())


parts = [part.remote(ref, i, i + 500_000) for i in range(0, 2_000_000, 500_000)]
total = sum(manta.get(parts))
assert total == array.sum()
print("sum =", total)
