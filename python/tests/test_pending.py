"""ObjectRefs that are not ready, given to constructors and generators: whoever gives them does not wait."""
import pytest
import signs

import manta
from manta import exceptions


@pytest.fixture(autouse=True)
def _cluster(cluster):
    pass


@manta.remote
def gate(path, value):
    assert signs.wait(path)
    return value


@manta.remote
class Holder:
    def __init__(self, first, *, second):
        self.both = first, second

    def get(self):
        return self.both


def test_a_constructor_is_waited_for_by_nobody(tmp_path):
    path = str(tmp_path / "open")
    actor = Holder.remote(gate.remote(path, 1), second=gate.remote(path, [2]))  # would wait for ever
    call = actor.get.remote()
    assert manta.wait([call], timeout=0.1)[0] == []
    signs.give(path)
    assert manta.get(call, timeout=100) == (1, [2])


def test_it_gives_back_its_cpus_meanwhile(tmp_path):
    path = str(tmp_path / "open")
    later = gate.options(num_cpus=4).remote(path, 1)  # all there are
    last = gate.options(num_cpus=4).remote(path, later)  # begins after it
    actor = Holder.options(num_cpus=4).remote(last, second=2)
    signs.give(path)
    assert manta.get(actor.get.remote(), timeout=100) == (1, 2)


def test_a_value_that_fails_fails_the_constructor(tmp_path):
    @manta.remote
    def fails():
        assert signs.wait(str(tmp_path / "open"))
        raise KeyError("no such thing")

    actor = Holder.remote(fails.remote(), second=2)
    signs.give(tmp_path / "open")
    with pytest.raises(exceptions.ActorDiedError, match="no such thing"):
        manta.get(actor.get.remote(), timeout=100)


def test_a_generator_task(tmp_path):
    @manta.remote
    def count(upto, *, step):
        yield from range(0, upto, step)

    path = str(tmp_path / "open")
    items = count.remote(gate.remote(path, 5), step=gate.remote(path, 2))
    signs.give(path)
    assert [manta.get(item) for item in items] == [0, 2, 4]


def test_a_generator_method(tmp_path):
    @manta.remote
    class Source:
        def count(self, upto):
            yield from range(upto)

    path = str(tmp_path / "open")
    source = Source.remote()
    items = source.count.remote(gate.remote(path, 3))
    signs.give(path)
    assert [manta.get(item) for item in items] == [0, 1, 2]


def test_what_was_awaited_is_there_again_after_a_restart(tmp_path):
    import os
    import signal

    @manta.remote
    class Owner:
        def __init__(self, value):
            self.value = value

        @manta.method(read_only=True)
        def pid(self):
            return os.getpid()

        def get(self):
            return self.value

    path = str(tmp_path / "open")
    actor = Owner.remote(gate.remote(path, "x" * 100_000))
    signs.give(path)
    assert manta.get(actor.get.remote(), timeout=100) == "x" * 100_000
    os.kill(manta.get(actor.pid.remote()), signal.SIGKILL)
    assert manta.get(actor.get.remote(), timeout=100) == "x" * 100_000
