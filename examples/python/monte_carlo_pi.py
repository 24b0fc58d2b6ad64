"""π by throwing darts: many tasks, each with its own random numbers, and a running mean while they finish."""
import random

import manta

manta.init()

THROWS = 100_000
TASKS = 20


@manta.remote
def hits(seed, throws):
    dice = random.Random(seed)
    return sum(dice.random() ** 2 + dice.random() ** 2 <= 1 for _ in range(throws))


refs = [hits.remote(seed, THROWS) for seed in range(TASKS)]
inside = done = 0
while refs:
    (ready,), refs = manta.wait(refs)
    inside += manta.get(ready)
    done += 1
print(f"π ≈ {4 * inside / (done * THROWS):.2f} from {done * THROWS:,} throws")
