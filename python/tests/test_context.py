"""What a program, a task and an actor know of themselves."""
import pytest

import manta


@pytest.fixture(autouse=True)
def _cluster(cluster):
    pass


def facts():
    context = manta.get_runtime_context()
    return {**context.get(), "name": context.get_task_name(), "resources": context.get_assigned_resources()}


def test_in_the_driver():
    about = facts()
    assert about["name"] is None and about["resources"] == {} and "task_id" not in about
    context = manta.get_runtime_context()
    assert len(context.get_job_id()) == 32 and context.job_id == context.get_job_id()
    assert context.get_task_id() is None and context.get_actor_id() is None and context.get_actor_name() is None
    assert context.worker_mode == "driver"
    for absent in ("gcs_address", "runtime_env"):
        with pytest.raises(NotImplementedError):
            getattr(context, absent)


def test_in_tasks():
    here = facts()
    refs = [manta.remote(facts).options(name="who", num_cpus=cpus, resources={"disk": 1}).remote() for cpus in (1, 0.5)]
    whole, half = manta.get(refs)
    assert whole["job_id"] == here["job_id"] and whole["node_id"] == here["node_id"]
    assert whole["worker_id"] != here["worker_id"] and whole["task_id"] != half["task_id"]
    assert whole["name"] == "who" and "actor_id" not in whole
    assert whole["resources"] == {"CPU": 1, "disk": 1} and half["resources"] == {"CPU": 0.5, "disk": 1}
    large = manta.remote(facts).options(num_cpus=0, memory=1 << 20).remote()
    assert manta.get(large)["resources"] == {"memory": 1 << 20}


def test_in_actors():
    @manta.remote
    class Who:
        def __init__(self):
            self.begun = facts()

        def facts(self):
            context = manta.get_runtime_context()
            return self.begun, facts(), context.get_actor_name(), context.was_current_actor_reconstructed

    plain = Who.options(num_cpus=1).remote()
    begun, about, name, again = manta.get(plain.facts.remote())
    assert about["resources"] == begun["resources"] == {"CPU": 1} and name is None and again is False
    assert about["actor_id"] == begun["actor_id"] == plain._actor_id and about["job_id"] == facts()["job_id"]
    named = Who.options(name="known").remote()
    assert manta.get(named.facts.remote())[2] == "known"


def test_rays_modules_have_their_names():
    import manta.actor
    import manta.remote_function
    import manta.runtime_context

    assert isinstance(manta.remote(len), manta.remote_function.RemoteFunction)
    assert isinstance(manta.get_runtime_context(), manta.runtime_context.RuntimeContext)

    @manta.remote
    class Plain:
        def handle(self) -> bool:
            return isinstance(manta.get_runtime_context().current_actor, manta.actor.ActorHandle)

    made = Plain.remote()
    assert isinstance(made, manta.actor.ActorHandle) and isinstance(Plain, manta.actor.ActorClass)
    assert manta.get(made.handle.remote())


def named():
    context = manta.get_runtime_context()
    return context.get_task_function_name(), context.is_canceled(), context.get_node_labels()


def test_the_function_of_a_task_and_the_labels_of_its_node():
    name, cancelled, labels = manta.get(manta.remote(named).options(name="other").remote())
    assert name.endswith(".named") and not cancelled and isinstance(labels, dict)
    context = manta.get_runtime_context()
    assert context.get_task_function_name() is None
    assert context.current_placement_group_id.is_nil()
    assert not context.should_capture_child_tasks_in_placement_group
    with pytest.raises(RuntimeError, match="is_canceled"):
        context.is_canceled()
    assert [node["alive"] for node in manta.nodes()] == [True]


def test_a_method_knows_its_function():
    @manta.remote
    class Thing:
        def sync(self):
            return manta.get_runtime_context().get_task_function_name()

    assert manta.get(Thing.remote().sync.remote()).endswith("Thing.sync")


def test_a_task_sees_that_it_was_cancelled(tmp_path, eventually):
    @manta.remote(max_retries=0)
    def stubborn(started, seen):
        import time

        started.touch()
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            seen.write_text(str(manta.get_runtime_context().is_canceled()))
            raise

    started, seen = tmp_path / "started", tmp_path / "seen"
    ref = stubborn.remote(started, seen)
    assert eventually(started.exists)
    manta.cancel(ref)
    with pytest.raises(manta.exceptions.TaskCancelledError):
        manta.get(ref, timeout=30)
    assert seen.read_text() == "True"


def test_get_runtime_context_initialises(run_script):
    out = run_script("import manta\nmanta.get_runtime_context()\nprint(manta.is_initialized())")
    assert out.stdout.strip() == "True"


def test_calls_of_an_async_actor_know_their_names_and_ids():
    import asyncio

    @manta.remote(num_cpus=0)
    class Async:
        def __init__(self):
            self.both = asyncio.Event()
            self.here = 0

        async def who(self):
            """Answers when two calls run at the same time."""
            before = self.context()
            self.here += 1
            if self.here == 2:
                self.both.set()
            await self.both.wait()
            return before, self.context(), await asyncio.create_task(self.inner())

        async def inner(self):
            return self.context()

        def context(self):
            context = manta.get_runtime_context()
            return context.get_task_name(), context.get_task_id()

    actor = Async.remote()
    refs = [actor.who.options(name="first").remote(), actor.who.remote()]
    (first, *firsts), (second, *seconds) = manta.get(refs, timeout=60)
    assert firsts == [first, first] and seconds == [second, second]
    assert (first[0], second[0]) == ("first", "Async.who")
    assert first[1] and second[1] and first[1] != second[1]
