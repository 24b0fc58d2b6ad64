"""Actors, written as users write them."""
import asyncio
import os
import signal
import threading
import time

import pytest
import signs

import manta
from manta import exceptions

pytestmark = pytest.mark.usefixtures("cluster")


@manta.remote
class Counter:
    def __init__(self, start=0):
        self.value = start

    def add(self, by=1):
        self.value += by
        return self.value

    def fail(self):
        raise KeyError("no")

    def pid(self):
        return os.getpid()

    def die(self):
        os._exit(3)

    @manta.method(num_returns=2)
    def both(self):
        return self.value, -self.value


def test_an_actor_keeps_its_state_and_its_process():
    counter = Counter.remote(10)
    assert manta.get([counter.add.remote() for _ in range(5)]) == [11, 12, 13, 14, 15]
    assert manta.get(counter.add.remote(by=5)) == 20
    pids = manta.get([counter.pid.remote() for _ in range(3)])
    assert len(set(pids)) == 1 and pids[0] != os.getpid()


def test_two_actors_are_two():
    a, b = Counter.remote(), Counter.remote(100)
    assert manta.get([a.add.remote(), b.add.remote()]) == [1, 101]
    assert manta.get(a.pid.remote()) != manta.get(b.pid.remote())
    assert a != b and a == a


def test_refs_are_arguments_of_constructors_and_methods():
    counter = Counter.remote(manta.put(5))
    assert manta.get(counter.add.remote(manta.put(2))) == 7


def test_a_method_that_raises_fails_its_call_only():
    counter = Counter.remote()
    with pytest.raises(KeyError, match="no"):
        manta.get(counter.fail.remote())
    assert manta.get(counter.add.remote()) == 1


def test_a_constructor_that_raises_fails_every_call():
    @manta.remote
    class Broken:
        def __init__(self):
            raise RuntimeError("cannot be")

        def hello(self):
            return 1

    with pytest.raises(exceptions.ActorDiedError, match="cannot be"):
        manta.get(Broken.remote().hello.remote())


def test_method_with_several_returns():
    counter = Counter.remote(3)
    a, b = counter.both.remote()
    assert manta.get([a, b]) == [3, -3]
    one = counter.both.options(num_returns=1).remote()
    assert manta.get(one) == (3, -3)


def test_an_unknown_method_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no method 'ad'"):
        Counter.remote().ad.remote()


def test_handles_travel_and_are_used_by_tasks_and_actors():
    @manta.remote
    def use(counter, n):
        return manta.get([counter.add.remote() for _ in range(n)])[-1]

    counter = Counter.remote()
    assert manta.get(use.remote(counter, 3)) == 3
    assert manta.get(use.remote(counter, 2)) == 5

    @manta.remote
    class Holder:
        def __init__(self, inner):
            self.inner = inner

        def go(self):
            return manta.get(self.inner["counter"].add.remote())

    assert manta.get(Holder.remote({"counter": counter}).go.remote()) == 6


def test_an_actor_class_is_used_inside_a_task():
    @manta.remote
    def make():
        counter = Counter.remote(7)
        return manta.get(counter.add.remote())

    assert manta.get(make.remote()) == 8


def test_named_actors():
    first = Counter.options(name="test-named").remote(1)
    assert manta.get(first.add.remote()) == 2
    again = manta.get_actor("test-named")
    assert manta.get(again.add.remote()) == 3 and again == first

    @manta.remote
    def by_name():
        return manta.get(manta.get_actor("test-named").add.remote())

    assert manta.get(by_name.remote()) == 4
    with pytest.raises(ValueError):
        Counter.options(name="test-named").remote()
    same = Counter.options(name="test-named", get_if_exists=True).remote()
    assert manta.get(same.add.remote()) == 5
    with pytest.raises(ValueError, match="nobody-here"):
        manta.get_actor("nobody-here")
    other = Counter.options(name="test-named", namespace="elsewhere").remote(50)
    assert manta.get(manta.get_actor("test-named", namespace="elsewhere").add.remote()) == 51
    del other


def test_kill_ends_it_at_once():
    counter = Counter.remote()
    manta.get(counter.add.remote())
    manta.kill(counter)
    with pytest.raises(exceptions.ActorDiedError):
        manta.get(counter.add.remote(), timeout=20)
    with pytest.raises(ValueError):
        manta.kill("x")


def test_an_actor_that_dies_for_good_fails_its_calls():
    counter = Counter.options(max_restarts=0).remote()
    with pytest.raises(exceptions.ActorDiedError):
        manta.get(counter.die.remote(), timeout=20)
    with pytest.raises(exceptions.ActorDiedError):
        manta.get(counter.add.remote(), timeout=20)


def test_max_restarts_without_replay_brings_it_back_anew():
    counter = Counter.options(max_restarts=1, max_task_retries=-1, replay=False).remote(5)
    assert manta.get(counter.add.remote()) == 6
    os.kill(manta.get(counter.pid.remote()), signal.SIGKILL)
    assert manta.get(counter.add.remote(), timeout=20) == 6
    os.kill(manta.get(counter.pid.remote()), signal.SIGKILL)
    with pytest.raises(exceptions.ActorDiedError):
        manta.get(counter.add.remote(), timeout=20)


def test_an_actor_ends_with_its_last_handle():
    counter = Counter.remote()
    pid = manta.get(counter.pid.remote())
    del counter
    deadline = time.time() + 20
    while os.path.exists(f"/proc/{pid}") and time.time() < deadline:
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{pid}")


def test_max_concurrency_runs_calls_side_by_side():
    @manta.remote(max_concurrency=3)
    class Meeting:
        def __init__(self):
            self.barrier = threading.Barrier(3)
            self.local = threading.local()

        def meet(self):
            self.local.times = getattr(self.local, "times", 0) + 1
            self.barrier.wait(20)
            return threading.get_ident(), self.local.times

    meeting = Meeting.remote()
    assert len({ident for ident, _ in manta.get([meeting.meet.remote() for _ in range(3)], timeout=30)}) == 3
    assert all(times == 2 for _, times in manta.get([meeting.meet.remote() for _ in range(3)], timeout=30))


def test_calls_of_one_caller_are_in_order():
    @manta.remote
    class Log:
        def __init__(self):
            self.seen = []

        def note(self, x):
            self.seen.append(x)

        def all(self):
            return self.seen

    log = Log.remote()
    for i in range(2000):
        log.note.remote(i)
    assert manta.get(log.all.remote()) == list(range(2000))


def test_a_detached_actor_outlives_its_driver(run_script):
    import subprocess
    import sys

    folder = os.path.join(os.path.dirname(manta.__file__), "bin")
    reader, writer = os.pipe()
    daemon = subprocess.Popen([os.path.join(folder, "mantad"), "--cpus", "2", "--ready-fd", str(writer)],
                              pass_fds=[writer])
    os.close(writer)
    try:
        address = os.read(reader, 200).decode().strip()
        os.close(reader)
        script = f"""
import manta, sys
manta.init(address={address!r}, namespace="n")
@manta.remote
class Keeper:
    def __init__(self): self.value = 40
    def add(self): self.value += 1; return self.value
"""
        run_script(script + """
k = Keeper.options(name="keeper", lifetime="detached").remote()
assert manta.get(k.add.remote()) == 41
""")
        run_script(script + """
assert manta.get(manta.get_actor("keeper").add.remote()) == 42
manta.kill(manta.get_actor("keeper"))
""")
    finally:
        daemon.terminate()
        daemon.wait(20)
    assert sys.version_info >= (3, 11)


def test_calling_an_actor_directly_says_how_to():
    with pytest.raises(TypeError, match=r"Counter\.remote"):
        Counter()
    with pytest.raises(TypeError, match=r"add\.remote"):
        Counter.remote().add()


def test_async_methods_wait_side_by_side():
    @manta.remote
    class Waiter:
        def __init__(self):
            self.event = asyncio.Event()
            self.waiting = 0

        async def wait(self):
            self.waiting += 1
            await self.event.wait()
            return self.waiting

        async def release(self):
            self.event.set()

    waiter = Waiter.remote()
    waits = [waiter.wait.remote() for _ in range(50)]
    assert manta.wait(waits, timeout=0.1)[0] == []
    manta.get(waiter.release.remote(), timeout=20)
    assert manta.get(waits, timeout=20) == [50] * 50


def test_async_methods_may_sleep_raise_and_await_refs():
    @manta.remote
    def slow(x):
        time.sleep(0.05)
        return x

    @manta.remote
    class Async:
        def __init__(self):
            self.all_here = asyncio.Event()
            self.here = 0

        async def meet(self, count):
            self.here += 1
            if self.here == count:
                self.all_here.set()
            await self.all_here.wait()
            return count

        async def fail(self):
            await asyncio.sleep(0)
            raise KeyError("async")

        async def ask(self, x):
            return sum(await asyncio.gather(slow.remote(x), slow.remote(x)))

        def plain(self):
            return "plain"

        async def quick(self, x):
            return x

    actor = Async.remote()
    assert manta.get([actor.meet.remote(20) for _ in range(20)], timeout=100) == [20] * 20
    with pytest.raises(KeyError, match="async"):
        manta.get(actor.fail.remote(), timeout=20)
    assert manta.get(actor.ask.remote(5), timeout=20) == 10
    assert manta.get(actor.plain.remote(), timeout=20) == "plain"
    assert manta.get([actor.quick.remote(i) for i in range(1000)], timeout=30) == list(range(1000))


def test_max_concurrency_limits_an_async_actor():
    @manta.remote(max_concurrency=2)
    class Two:
        def __init__(self):
            self.now = self.most = 0

        async def work(self):
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.02)
            self.now -= 1
            return self.most

    assert max(manta.get([Two.remote().work.remote()], timeout=20)) == 1
    two = Two.remote()
    assert max(manta.get([two.work.remote() for _ in range(6)], timeout=20)) == 2


def test_refs_are_awaited_in_a_driver():
    @manta.remote
    def square(x):
        time.sleep(0.01)
        return x * x

    async def main():
        first = await square.remote(3)
        rest = await asyncio.gather(*[square.remote(i) for i in range(5)])
        with pytest.raises(ZeroDivisionError):
            await bad.remote()
        return first, rest

    @manta.remote
    def bad():
        return 1 / 0

    assert asyncio.run(main()) == (9, [0, 1, 4, 9, 16])


def test_max_pending_calls_raises_when_full(tmp_path):
    @manta.remote(max_pending_calls=2)
    class Slow:
        def wait(self, path):
            return signs.wait(path)

    slow = Slow.remote()
    go = str(tmp_path / "go")
    refs = [slow.wait.remote(go), slow.wait.remote(go)]
    with pytest.raises(exceptions.PendingCallsLimitExceeded):
        slow.wait.remote(go)
    signs.give(go)
    assert manta.get(refs, timeout=100) == [True, True]
    assert manta.get(slow.wait.remote(go), timeout=100)


def test_exit_actor_ends_it_on_purpose():
    @manta.remote(max_restarts=-1)
    class Leaver:
        def leave(self):
            manta.exit_actor()

        def id(self):
            return manta.get_runtime_context().get_actor_id()

    leaver = Leaver.remote()
    assert manta.get(leaver.id.remote()) == leaver._actor_id
    with pytest.raises(exceptions.ActorDiedError):
        manta.get(leaver.leave.remote(), timeout=20)
    with pytest.raises(exceptions.ActorDiedError):
        manta.get(leaver.id.remote(), timeout=20)
    assert manta.get_runtime_context().get_actor_id() is None
    with pytest.raises(TypeError):
        manta.exit_actor()


def test_lines_of_an_actor_begin_with_what_its_class_says_it_is(run_script):
    done = run_script("""
import sys, manta
manta.init(num_cpus=1)

@manta.remote
class Named:
    def __init__(self, number):
        self.number = number
    def __repr__(self):
        return f"Named({self.number})"
    def speak(self):
        sys.stdout.write("hello\\n")

@manta.remote
class Plain:
    def speak(self):
        print("hello")

named, plain = Named.remote(7), Plain.options(num_cpus=0).remote()
manta.get([named.speak.remote(), plain.speak.remote()])
manta.shutdown()
""")
    lines = sorted(line.partition(" pid=")[0] for line in done.stdout.splitlines() if line.endswith("hello"))
    assert lines == ["(Named(7)", "(Plain.speak"]


def test_an_async_call_is_cancelled():
    @manta.remote
    class Sleeper:
        def __init__(self):
            self.cancelled = 0

        async def sleep(self):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise

        async def count(self):
            return self.cancelled

    sleeper = Sleeper.remote()
    ref = sleeper.sleep.remote()
    assert manta.get(sleeper.count.remote(), timeout=20) == 0
    manta.cancel(ref)
    with pytest.raises(exceptions.TaskCancelledError):
        manta.get(ref, timeout=20)
    deadline = time.time() + 20
    while manta.get(sleeper.count.remote(), timeout=20) == 0 and time.time() < deadline:
        time.sleep(0.01)
    assert manta.get(sleeper.count.remote(), timeout=20) == 1


def test_a_background_task_runs_between_calls():
    @manta.remote
    class Ticker:
        def __init__(self):
            self.ticks = 0
            self.task = None

        async def begin(self):
            async def tick():
                while True:
                    self.ticks += 1
                    await asyncio.sleep(0.001)
            self.task = asyncio.get_running_loop().create_task(tick())

        async def seen(self):
            return self.ticks

    ticker = Ticker.remote()
    manta.get(ticker.begin.remote(), timeout=20)
    deadline = time.time() + 20
    while manta.get(ticker.seen.remote(), timeout=20) < 5 and time.time() < deadline:
        time.sleep(0.01)
    assert manta.get(ticker.seen.remote(), timeout=20) >= 5


def test_concurrency_groups_bound_each_other_not(eventually):
    @manta.remote(concurrency_groups={"io": 2, "compute": 1})
    class Worker:
        def __init__(self):
            self.most = {}
            self.now = {}
            self.lock = threading.Lock()
            self.go = threading.Event()

        def _run(self, group):
            with self.lock:
                self.now[group] = self.now.get(group, 0) + 1
                self.most[group] = max(self.most.get(group, 0), self.now[group])
            self.go.wait(100)
            with self.lock:
                self.now[group] -= 1

        @manta.method(concurrency_group="io")
        def fetch(self):
            self._run("io")

        @manta.method(concurrency_group="compute")
        def crunch(self):
            self._run("compute")

        def plain(self, group="default"):
            self._run(group)

        def seen(self):
            return dict(self.now), dict(self.most)

        def let_go(self, go):
            self.go.set() if go else self.go.clear()

    worker = Worker.remote()
    refs = [worker.fetch.remote() for _ in range(4)] + [worker.crunch.remote() for _ in range(2)]
    # A group that is full holds up no other, and no group takes more than it may.
    assert eventually(lambda: manta.get(worker.seen.remote(), timeout=100)[0] == {"io": 2, "compute": 1})
    manta.get(worker.let_go.remote(True), timeout=100)
    manta.get(refs, timeout=100)
    assert manta.get(worker.seen.remote(), timeout=100)[1] == {"io": 2, "compute": 1}
    # A call may choose another group than its method's.
    manta.get(worker.let_go.remote(False), timeout=100)
    refs = [worker.plain.options(concurrency_group="io").remote("chosen") for _ in range(4)]
    assert eventually(lambda: manta.get(worker.seen.remote(), timeout=100)[0].get("chosen") == 2)
    manta.get(worker.let_go.remote(True), timeout=100)
    manta.get(refs, timeout=100)
    assert manta.get(worker.seen.remote(), timeout=100)[1]["chosen"] == 2
    with pytest.raises(ValueError, match="no concurrency group 'disk'"):
        worker.fetch.options(concurrency_group="disk").remote()

    @manta.remote
    def elsewhere(handle):
        return manta.get([handle.fetch.remote(), handle.plain.options(concurrency_group="compute").remote()])

    assert manta.get(elsewhere.remote(worker), timeout=100) == [None, None]


def test_concurrency_groups_of_coroutines():
    import asyncio

    @manta.remote(concurrency_groups={"io": 3})
    class Async:
        def __init__(self):
            self.now = self.most = 0

        @manta.method(concurrency_group="io")
        async def fetch(self):
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.05)
            self.now -= 1

        async def seen(self):
            return self.most

    actor = Async.remote()
    refs = [actor.fetch.remote() for _ in range(9)]
    assert manta.get(actor.seen.remote(), timeout=20) <= 3
    manta.get(refs, timeout=20)
    assert manta.get(actor.seen.remote(), timeout=20) == 3


def test_a_method_of_an_unknown_concurrency_group_raises():
    @manta.remote(concurrency_groups={"io": 1})
    class Wrong:
        @manta.method(concurrency_group="disk")
        def read(self):
            pass

    with pytest.raises(ValueError, match="'disk'"):
        Wrong.remote()


def test_dynamic_returns_of_a_method():
    @manta.remote
    class Many:
        def numbers(self, count):
            yield from range(count)

    refs = manta.get(Many.remote().numbers.options(num_returns="dynamic").remote(3), timeout=20)
    assert manta.get(list(refs)) == [0, 1, 2]


def test_a_methods_name_is_what_messages_say():
    @manta.remote
    class Named:
        @manta.method(name="the-method")
        def fail(self):
            raise RuntimeError("x")

    actor = Named.remote()
    with pytest.raises(RuntimeError) as caught:
        manta.get(actor.fail.remote())
    assert "the-method() (pid=" in str(caught.value)
    with pytest.raises(RuntimeError) as caught:
        manta.get(actor.fail.options(name="this-call").remote())
    assert "this-call() (pid=" in str(caught.value)
    for wrong in ({"max_task_retries": -2}, {"retry_exceptions": [1]}, {"num_cpus": 1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            actor.fail.options(**wrong)
        with pytest.raises(ValueError, match=next(iter(wrong))):
            manta.method(**wrong)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_methods_max_task_retries_goes_before_the_actors(tmp_path, is_async):
    @manta.remote(max_restarts=-1, replay=False)
    class Fragile:
        def _die(self, name, times):
            with open(tmp_path / name, "a") as file:
                file.write("x")
            if (tmp_path / name).stat().st_size <= times:
                os._exit(1)
            return (tmp_path / name).stat().st_size

        if is_async:
            async def run(self, name, times):
                return self._die(name, times)

            @manta.method(max_task_retries=2)
            async def stubborn(self, name, times):
                return self._die(name, times)
        else:
            def run(self, name, times):
                return self._die(name, times)

            @manta.method(max_task_retries=2)
            def stubborn(self, name, times):
                return self._die(name, times)

    actor = Fragile.remote()
    with pytest.raises(exceptions.MantaError):
        manta.get(actor.run.remote("none", 1), timeout=100)
    assert manta.get(actor.run.options(max_task_retries=1).remote("one", 1), timeout=100) == 2
    with pytest.raises(exceptions.MantaError):
        manta.get(actor.run.options(max_task_retries=1).remote("too few", 2), timeout=100)
    assert manta.get(actor.stubborn.remote("method", 2), timeout=100) == 3
    with pytest.raises(exceptions.MantaError):
        manta.get(actor.stubborn.options(max_task_retries=0).remote("not now", 1), timeout=100)
    # And the other way round: an actor's retries, and a call without.
    actor = Fragile.options(max_task_retries=-1).remote()
    with pytest.raises(exceptions.MantaError):
        manta.get(actor.run.options(max_task_retries=0).remote("zero", 1), timeout=100)
    assert manta.get(actor.run.remote("all", 3), timeout=100) == 4


@pytest.mark.parametrize("is_async", [False, True])
def test_retry_exceptions_of_methods(is_async):
    class Again(Exception):
        pass

    @manta.remote(max_task_retries=3)
    class Flaky:
        def __init__(self):
            self.calls = 0

        def _try(self, error, times):
            self.calls += 1
            if self.calls <= times:
                raise error("not yet")
            calls, self.calls = self.calls, 0
            return calls

        if is_async:
            async def run(self, error, times):
                return self._try(error, times)

            @manta.method(retry_exceptions=[Again], max_task_retries=1)
            async def some(self, error, times):
                return self._try(error, times)
        else:
            def run(self, error, times):
                return self._try(error, times)

            @manta.method(retry_exceptions=[Again], max_task_retries=1)
            def some(self, error, times):
                return self._try(error, times)

        def reset(self):
            self.calls = 0

    actor = Flaky.remote()

    def fails(call, error, times):
        with pytest.raises(error):
            manta.get(call.remote(error, times), timeout=100)
        manta.get(actor.reset.remote(), timeout=100)

    fails(actor.run, Again, 1)
    assert manta.get(actor.run.options(retry_exceptions=True).remote(ValueError, 3), timeout=100) == 4
    fails(actor.run.options(retry_exceptions=True), ValueError, 4)
    fails(actor.run.options(retry_exceptions=True, max_task_retries=0), ValueError, 1)
    only = actor.run.options(retry_exceptions=[Again, KeyError])
    assert manta.get([only.remote(Again, 2), only.remote(KeyError, 1)], timeout=100) == [3, 2]
    fails(only, ValueError, 1)
    assert manta.get(actor.some.remote(Again, 1), timeout=100) == 2
    fails(actor.some, Again, 2)
    fails(actor.some, ValueError, 1)


def test_an_actor_gives_away_a_handle_of_itself():
    @manta.remote
    class Self:
        def __init__(self):
            self.value = 1

        def handle(self):
            return manta.get_runtime_context().current_actor

        def get(self):
            return self.value

    actor = Self.remote()
    other = manta.get(actor.handle.remote(), timeout=20)
    assert other == actor and manta.get(other.get.remote(), timeout=20) == 1
    with pytest.raises(AttributeError, match="no method 'set'"):
        other.set  # noqa: B018
    with pytest.raises(RuntimeError, match="methods of an actor"):
        manta.get_runtime_context().current_actor  # noqa: B018


@pytest.mark.parametrize("no_restart", [True, False])
def test_a_killed_actor_comes_back_only_if_it_may(no_restart, eventually):
    counter = Counter.remote(3)
    assert manta.get(counter.add.remote()) == 4
    pid_of = counter.pid.options(read_only=True)  # another one when it is repeated
    pid = manta.get(pid_of.remote())
    manta.kill(counter, no_restart=no_restart)
    if no_restart:
        with pytest.raises(exceptions.ActorDiedError):
            manta.get(counter.add.remote(), timeout=100)
    else:
        assert eventually(lambda: manta.get(pid_of.remote(), timeout=100) != pid)
        assert manta.get(counter.add.remote(), timeout=100) == 5


def test_a_class_cannot_inherit_from_an_actor_class():
    with pytest.raises(TypeError, match="plain class"):
        class Derived(Counter):
            pass


def test_every_actor_can_be_awaited_and_ended_as_in_ray():
    @manta.remote
    class Async:
        async def one(self):
            return 1

    for actor in (Counter.remote(), Async.remote()):
        assert manta.get(actor.__ray_ready__.remote(), timeout=100) is True
        actor.__ray_terminate__.remote()
        with pytest.raises(exceptions.ActorDiedError):
            manta.get(actor.__ray_ready__.remote(), timeout=100)


@manta.remote
class Tree:
    """Pickled by value together with its own ActorClass, because its methods name it."""

    def __init__(self, depth):
        self.children = [Tree.remote(depth - 1) for _ in range(2)] if depth else []

    def size(self):
        return 1 + sum(manta.get([child.size.remote() for child in self.children]))

    def grow(self):
        self.children.append(Tree.options(num_cpus=0).remote(0))
        return self.children[-1]


def test_an_actor_makes_actors_of_its_own_class():
    root = Tree.remote(1)
    assert manta.get(root.size.remote(), timeout=30) == 3
    child = manta.get(root.grow.remote(), timeout=30)
    assert manta.get([child.size.remote(), root.size.remote()], timeout=30) == [1, 4]

    @manta.remote
    class Local:
        async def twin(self):
            return Local.remote()

        async def one(self):
            return 1

    assert manta.get(manta.get(Local.remote().twin.remote(), timeout=30).one.remote(), timeout=30) == 1


@manta.remote
class PutsInCoroutines:
    async def refs(self, tag):
        return [manta.put((tag, i)) for i in range(20)]

    async def call(self, tag):
        return await Counter.remote(tag).add.remote(0)


def test_what_coroutines_of_several_actors_make_has_ids_of_its_own():
    actors = [PutsInCoroutines.remote() for _ in range(3)]
    lists = manta.get([actor.refs.remote(tag) for tag, actor in enumerate(actors)], timeout=60)
    own = [manta.put(("driver", i)) for i in range(20)]
    assert len({ref.hex() for refs in [*lists, own] for ref in refs}) == 80
    assert [manta.get(refs, timeout=60) for refs in lists] == [[(tag, i) for i in range(20)] for tag in range(3)]
    assert manta.get([actor.call.remote(tag) for tag, actor in enumerate(actors)], timeout=60) == [0, 1, 2]
