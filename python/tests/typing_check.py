"""What mypy must find out about a user's program. Checked by `make check`, never run."""
from typing import assert_type

import manta


@manta.remote
def length(text: str) -> int:
    return len(text)


@manta.remote(num_cpus=2)
def upper(text: str) -> str:
    return text.upper()


class Counter:
    def add(self, by: int) -> int:
        return by


assert_type(length.remote("x"), manta.ObjectRef[int])
assert_type(manta.get(length.remote("x")), int)
assert_type(manta.get([upper.remote("x")]), list[str])
assert_type(upper.options(num_cpus=1).remote("x"), manta.ObjectRef[str])
assert_type(manta.put(1.5), manta.ObjectRef[float])
assert_type(manta.put(1.5, durable=True), manta.ObjectRef[float])
assert_type(length.remote("x").future().result(), int)
# mypy does not look at what a decorator makes of a class; a call says it.
Remote = manta.remote(Counter)
assert_type(Remote.remote(), manta.ActorHandle[Counter])
ready, rest = manta.wait([length.remote("x")], num_returns=1)
assert_type(ready, list[manta.ObjectRef[int]])


async def use() -> None:
    assert_type(await length.remote("x"), int)
