"""Actors whose process is killed: they come back, and every call counts once (doc/failures.md)."""
import os
import random
import signal
import threading
from datetime import timedelta

import pytest
import signs

import manta
from manta.exceptions import ActorDiedError, WorkerCrashedError


@pytest.fixture(autouse=True)
def _cluster(cluster):
    pass


@manta.remote
class Tally:
    """Notes outside of the engine how often its methods ran."""

    def __init__(self, notes, start=0):
        self.notes = str(notes)
        self.value = start

    def add(self, by):
        with open(self.notes, "a") as file:
            file.write(f"{by}\n")
        self.value += by
        return self.value

    @manta.method(read_only=True)
    def pid(self):
        return os.getpid()

    @manta.method(read_only=True)
    def total(self):
        return self.value

    def die_once(self, mark, by):
        self.value += by
        if not signs.given(mark):
            signs.give(mark)
            os.kill(os.getpid(), signal.SIGKILL)
        return self.value

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)


def kill(actor):
    os.kill(manta.get(actor.pid.remote(), timeout=100), signal.SIGKILL)


def ran(notes):
    with open(notes) as file:
        return [int(line) for line in file]


def test_killed_under_calls_it_answers_each_once_and_in_order(tmp_path):
    tally = Tally.remote(tmp_path / "notes", 1000)
    calls = [tally.add.remote(i) for i in range(100)]
    for round in range(3):
        manta.get(calls[30 * round], timeout=100)
        kill(tally)
        calls += [tally.add.remote(i) for i in range(100)]
    sums, value = [], 1000
    for _ in range(4):
        for i in range(100):
            value += i
            sums.append(value)
    assert manta.get(calls, timeout=100) == sums
    assert manta.get(tally.total.remote(), timeout=100) == value


def test_a_call_that_it_died_in_is_run_again_from_the_state_before(tmp_path):
    tally = Tally.remote(tmp_path / "notes", 5)
    assert manta.get(tally.die_once.remote(str(tmp_path / "mark"), 7), timeout=100) == 12
    assert manta.get(tally.add.remote(1), timeout=100) == 13


def test_a_call_that_kills_it_every_time_fails_and_it_goes_on(tmp_path):
    tally = Tally.remote(tmp_path / "notes")
    manta.get(tally.add.remote(3))
    with pytest.raises(WorkerCrashedError):
        manta.get(tally.die.remote(), timeout=100)
    assert manta.get(tally.add.remote(4), timeout=100) == 7


def test_all_calls_are_repeated_without_a_checkpoint(tmp_path):
    tally = Tally.remote(tmp_path / "notes")
    manta.get([tally.add.remote(i) for i in range(5)])
    kill(tally)
    assert manta.get(tally.add.remote(10), timeout=100) == 20
    assert ran(tmp_path / "notes") == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 10]


def test_with_checkpoints_only_the_calls_since_the_last_are_repeated(tmp_path):
    tally = Tally.options(checkpoint_every=10).remote(tmp_path / "notes")
    manta.get([tally.add.remote(i) for i in range(23)])
    kill(tally)
    assert manta.get(tally.add.remote(100), timeout=100) == sum(range(23)) + 100
    assert ran(tmp_path / "notes") == [*range(23), 20, 21, 22, 100]


def test_a_checkpoint_after_some_time(tmp_path):
    tally = Tally.options(checkpoint_every=timedelta(microseconds=1)).remote(tmp_path / "notes")
    manta.get([tally.add.remote(i) for i in range(7)])
    kill(tally)
    assert manta.get(tally.add.remote(10), timeout=100) == 31
    assert ran(tmp_path / "notes") == [*range(7), 10]


class Base:
    def pid(self):
        return os.getpid()

    pid = manta.method(read_only=True)(pid)


class WithMethods(Base):
    def __init__(self, notes):
        self.notes, self.value, self.lock = notes, 0, threading.Lock()

    def __manta_save__(self):
        return self.value

    def __manta_load__(self, value):
        self.value = value

    def add(self, by):
        signs.give(f"{self.notes}.{by}.{os.getpid()}")
        with self.lock:
            self.value += by
        return self.value


class WithGetState(Base):
    """What it leaves out is as the constructor made it."""

    def __init__(self, notes):
        self.notes, self.value, self.lock = notes, 0, threading.Lock()

    def __getstate__(self):
        return {"value": self.value}

    add = WithMethods.add


class WithBoth(WithGetState):
    def __getstate__(self):
        return self.value + 1

    def __setstate__(self, state):
        self.value = state - 1


class WithSlots(Base):
    __slots__ = ("lock", "notes", "value")

    def __init__(self, notes):
        self.notes, self.value, self.lock = notes, 0, manta.put(1) and _Nothing()

    add = WithMethods.add


class _Nothing:
    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


class AList(list, Base):
    def __init__(self, notes):
        super().__init__([0])
        self.notes = notes

    def add(self, by):
        signs.give(f"{self.notes}.{by}.{os.getpid()}")
        self.append(self[-1] + by)
        return self[-1]


class Reduced(Base):
    def __init__(self, notes, value=0):
        self.notes, self.value, self.lock = notes, value, _Nothing()

    def __reduce__(self):
        return Reduced, (self.notes, self.value)

    add = WithMethods.add


@pytest.mark.parametrize("cls", [WithMethods, WithGetState, WithBoth, WithSlots, AList, Reduced])
def test_what_a_class_says_of_its_state_is_saved(cls, tmp_path):
    actor = manta.remote(cls).options(checkpoint_every=1).remote(str(tmp_path / "ran"))
    assert manta.get([actor.add.remote(by) for by in (1, 2, 3)]) == [1, 3, 6]
    kill(actor)
    assert manta.get(actor.add.remote(4), timeout=100) == 10
    assert len(os.listdir(tmp_path)) == 4  # nothing was repeated


def test_a_state_that_cannot_be_pickled_is_made_again_from_the_beginning(tmp_path):
    @manta.remote
    class Locked(Base):
        def __init__(self):
            self.value, self.lock = 0, threading.Lock()

        def add(self, by):
            with self.lock:
                self.value += by
            return self.value

    actor = Locked.options(checkpoint_every=1).remote()
    assert manta.get([actor.add.remote(by) for by in (1, 2, 3)]) == [1, 3, 6]
    kill(actor)
    assert manta.get(actor.add.remote(4), timeout=100) == 10


def test_one_half_of_a_pair_of_methods_is_refused():
    with pytest.raises(TypeError, match="__manta_load__"):
        @manta.remote
        class Half:
            def __manta_save__(self):
                return 1


def test_an_answer_that_differs_when_repeated_ends_it_and_names_the_method(tmp_path):
    @manta.remote
    class Strange(Base):
        def number(self):
            return os.getpid()

    actor = Strange.remote()
    manta.get(actor.number.remote())
    kill(actor)
    with pytest.raises(ActorDiedError, match="Strange.number.*differently.*read_only=True"):
        manta.get(actor.number.remote(), timeout=100)


def test_pickled_answers_and_arguments_are_not_compared(tmp_path):
    @manta.remote
    class Loose(Base):
        def look(self, words):
            return {"words": sorted(words), "pid": os.getpid()}

    actor = Loose.remote()
    first = manta.get(actor.look.remote({"a", "b"}))["pid"]
    kill(actor)
    second = manta.get(actor.look.remote({"c"}), timeout=100)
    assert second["words"] == ["c"] and second["pid"] != first


def test_random_numbers_and_sets_are_the_same_when_repeated():
    @manta.remote
    class Dice(Base):
        def __init__(self):
            self.thrown = []

        def throw(self):
            self.thrown.append(random.random())
            return self.thrown[-1]

        def order(self):
            return "".join({str(i) for i in range(50)})

    actor = Dice.remote()
    before = manta.get([actor.throw.remote(), actor.order.remote(), actor.throw.remote()])
    assert before[0] != before[2] != manta.get(Dice.remote().throw.remote())
    kill(actor)
    after = manta.get([actor.throw.remote(), actor.order.remote()], timeout=100)
    assert after[0] not in before and after[1] == before[1]

    saved = Dice.options(checkpoint_every=1).remote()
    before = manta.get([saved.throw.remote(), saved.throw.remote()])
    kill(saved)
    assert manta.get(saved.throw.remote(), timeout=100) not in before


def test_limits_of_restarts_are_kept(tmp_path):
    mortal = Tally.options(max_restarts=0).remote(tmp_path / "notes")
    kill(mortal)
    with pytest.raises(ActorDiedError):
        manta.get(mortal.add.remote(1), timeout=100)
    once = Tally.options(max_restarts=1, replay=True).remote(tmp_path / "notes")
    manta.get(once.add.remote(2))
    kill(once)
    assert manta.get(once.add.remote(3), timeout=100) == 5
    kill(once)
    with pytest.raises(ActorDiedError):
        manta.get(once.add.remote(1), timeout=100)


def test_with_max_restarts_alone_it_begins_anew_as_in_ray(tmp_path):
    @manta.remote(max_restarts=2, max_task_retries=-1)  # the next call may meet the death
    class Counter:
        def __init__(self):
            self.count = 0

        def pid(self):
            return os.getpid()

        def add(self):
            self.count += 1
            return self.count

    counter = Counter.remote()
    pid = manta.get(counter.pid.remote())
    assert manta.get([counter.add.remote(), counter.add.remote()]) == [1, 2]
    kill(counter)
    assert manta.get(counter.pid.remote(), timeout=100) != pid
    assert manta.get(counter.add.remote(), timeout=100) == 1

    saved = Tally.options(max_restarts=2, checkpoint_every=1).remote(tmp_path / "notes")
    manta.get(saved.add.remote(2))
    kill(saved)
    assert manta.get(saved.add.remote(3), timeout=100) == 5


def test_without_replay_it_is_as_in_ray(tmp_path):
    mortal = Tally.options(replay=False).remote(tmp_path / "notes")
    kill(mortal)
    with pytest.raises(ActorDiedError):
        manta.get(mortal.add.remote(1), timeout=100)
    anew = Tally.options(replay=False, max_restarts=1, max_task_retries=-1).remote(tmp_path / "notes", 5)
    assert manta.get(anew.add.remote(1)) == 6
    kill(anew)
    assert manta.get(anew.add.remote(2), timeout=100) == 7


def test_what_a_repeated_method_told_another_actor_counts_once(tmp_path):
    @manta.remote
    class Relay(Base):
        def __init__(self, to):
            self.to = to

        def tell(self, by, mark):
            out = manta.get(self.to.add.remote(by))
            if mark and not signs.given(mark):
                signs.give(mark)
                os.kill(os.getpid(), signal.SIGKILL)
            return out

    tally = Tally.remote(tmp_path / "notes")
    relay = Relay.remote(tally)
    assert manta.get([relay.tell.remote(1, ""), relay.tell.remote(2, str(tmp_path / "mark"))], timeout=100) == [1, 3]
    assert ran(tmp_path / "notes") == [1, 2]


def test_a_task_that_runs_again_has_called_once(tmp_path):
    @manta.remote
    def twice(to, mark):
        out = manta.get(to.add.remote(5))
        if not signs.given(mark):
            signs.give(mark)
            os.kill(os.getpid(), signal.SIGKILL)
        return out + manta.get(to.add.remote(6))

    tally = Tally.remote(tmp_path / "notes")
    assert manta.get(twice.remote(tally, str(tmp_path / "mark")), timeout=100) == 5 + 11
    assert ran(tmp_path / "notes") == [5, 6]


def test_a_generator_method_goes_on_in_another_process(tmp_path):
    @manta.remote
    class Source(Base):
        def __init__(self):
            self.given = 0

        def numbers(self, count):
            for i in range(count):
                self.given += 1
                yield i

        def count(self):
            return self.given

    source = Source.options(checkpoint_every=2).remote()
    stream = source.numbers.options(_generator_backpressure_num_objects=1).remote(6)
    got = [manta.get(next(stream)) for _ in range(3)]
    kill(source)
    got += [manta.get(ref, timeout=100) for ref in stream]
    assert got == [0, 1, 2, 3, 4, 5]
    assert manta.get(source.count.remote(), timeout=100) == 6


@pytest.mark.parametrize("kind", ["async", "threads", "groups"])
def test_one_that_does_several_things_at_a_time_comes_back_from_its_checkpoint(kind, tmp_path, eventually):
    if kind == "async":
        @manta.remote(checkpoint_every=1)
        class Keeper(Base):
            def __init__(self):
                self.value = 0

            async def add(self, by):
                self.value += by
                return self.value

            async def hang(self, mark):
                import asyncio

                signs.give(mark)
                await asyncio.sleep(1000)

            async def back(self):
                return manta.get_runtime_context().was_current_actor_reconstructed
    else:
        options = {"max_concurrency": 4} if kind == "threads" else {"concurrency_groups": {"other": 2}}

        @manta.remote(checkpoint_every=1, **options)
        class Keeper(Base):
            def __init__(self):
                self.value = 0

            def add(self, by):
                self.value += by
                return self.value

            @manta.method(**({"concurrency_group": "other"} if kind == "groups" else {"name": "hang"}))
            def hang(self, mark):
                signs.give(mark)
                signs.wait(mark + ".never")

            def back(self):
                return manta.get_runtime_context().was_current_actor_reconstructed

    keeper = Keeper.remote()
    for by in (1, 2, 3):
        manta.get(keeper.add.remote(by))
    assert not manta.get(keeper.back.remote())
    mark = str(tmp_path / "hangs")
    hangs = keeper.hang.remote(mark)
    assert signs.wait(mark)
    # Others run meanwhile, although a checkpoint is due.
    assert manta.get(keeper.add.remote(100), timeout=100) == 106
    kill(keeper)
    with pytest.raises(WorkerCrashedError):
        manta.get(hangs, timeout=100)
    assert eventually(lambda: manta.get(keeper.back.remote(), timeout=100))
    assert manta.get(keeper.add.remote(4), timeout=100) == 10


def test_was_current_actor_reconstructed(tmp_path):
    @manta.remote
    class Told(Base):
        @manta.method(read_only=True)
        def back(self):
            return manta.get_runtime_context().was_current_actor_reconstructed

    told = Told.remote()
    assert manta.get(told.back.remote()) is False
    kill(told)
    assert manta.get(told.back.remote(), timeout=100) is True
    with pytest.raises(RuntimeError):
        print(manta.get_runtime_context().was_current_actor_reconstructed)


@pytest.mark.parametrize("options", [{"checkpoint_every": 0}, {"checkpoint_every": 1.5}, {"checkpoint_every": True},
                                     {"checkpoint_every": timedelta(0)}, {"replay": 1}])
def test_wrong_options(options):
    with pytest.raises((TypeError, ValueError), match=next(iter(options))):
        Tally.options(**options)
    with pytest.raises(TypeError, match="read_only"):
        manta.method(read_only="yes")
