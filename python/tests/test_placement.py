"""Where tasks and actors run: placement groups, affinity, labels."""
import time

import pytest

import manta
from manta import exceptions
from manta.util import (
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from manta.util.scheduling_strategies import (
    DoesNotExist,
    Exists,
    In,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    NotIn,
    PlacementGroupSchedulingStrategy,
)


@pytest.fixture(scope="module", autouse=True)
def labelled_cluster():
    manta.init(num_cpus=4, labels={"zone": "a", "disk": "ssd"})
    yield
    manta.shutdown()


@manta.remote
def where():
    return manta.get_runtime_context().get_node_id()


@manta.remote
class Actor:
    def where(self):
        return manta.get_runtime_context().get_node_id()


def cpus_free():
    return manta.available_resources().get("CPU", 0)


def test_a_group_sets_resources_aside_and_gives_them_back(eventually):
    group = placement_group([{"CPU": 1}, {"CPU": 2}], strategy="PACK")
    assert manta.get(group.ready(), timeout=20) == group
    assert group.wait(5) and group.bundle_count == 2 and group.bundle_specs == [{"CPU": 1}, {"CPU": 2}]
    assert eventually(lambda: cpus_free() == 1)
    with pytest.raises(exceptions.GetTimeoutError):
        manta.get(where.options(num_cpus=2).remote(), timeout=0.3)  # only one is free for everybody
    inside = where.options(num_cpus=2, scheduling_strategy=PlacementGroupSchedulingStrategy(group, 1))
    assert manta.get(inside.remote(), timeout=20)
    actor = Actor.options(num_cpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote()
    assert manta.get(actor.where.remote(), timeout=20)
    remove_placement_group(group)
    assert eventually(lambda: cpus_free() == 4), (manta.available_resources(), placement_group_table())
    with pytest.raises(exceptions.MantaError):
        manta.get(inside.remote(), timeout=20)


def test_a_bundle_is_a_bound():
    group = placement_group([{"CPU": 1}])
    assert group.wait(20)
    strategy = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=0)

    @manta.remote(num_cpus=1, scheduling_strategy=strategy)
    def nap():
        begin = time.time()
        time.sleep(0.1)
        return begin, time.time()

    (a, b), (c, d) = manta.get([nap.remote(), nap.remote()], timeout=20)
    assert b <= c or d <= a
    with pytest.raises(exceptions.MantaError):
        manta.get(nap.options(num_cpus=2).remote(), timeout=5)
    with pytest.raises(ValueError, match="1 bundles"):
        PlacementGroupSchedulingStrategy(group, 1)
    remove_placement_group(group)


def test_names_and_the_table():
    group = placement_group([{"CPU": 1}], name="aside", strategy="STRICT_PACK")
    assert group.wait(20) and get_placement_group("aside") == group
    about = placement_group_table(group)
    assert about["state"] == "CREATED" and about["strategy"] == "STRICT_PACK" and about["name"] == "aside"
    assert about["bundles"] == {0: {"CPU": 1.0}} and group.id in placement_group_table()
    assert about["bundles_to_node_id"][0] == manta.nodes()[0]["NodeID"]
    remove_placement_group(group)
    with pytest.raises(ValueError):
        get_placement_group("aside")


def test_what_cannot_be_raises():
    with pytest.raises(exceptions.InfeasibleError):
        group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")  # one node
        manta.get(group.ready(), timeout=20)
    for wrong in ([], [{}], {"CPU": 1}, [{"CPU": -1}]):
        with pytest.raises(ValueError):
            placement_group(wrong)
    with pytest.raises(ValueError, match="ROUND"):
        placement_group([{"CPU": 1}], strategy="ROUND")
    with pytest.raises(NotImplementedError):
        placement_group([{"CPU": 1}], _max_cpu_fraction_per_node=0.5)


def test_a_group_travels_to_tasks():
    group = placement_group([{"CPU": 1}])

    @manta.remote
    def inner(group):
        ref = where.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote()
        return manta.get(ref, timeout=20)

    assert manta.get(inner.remote(group), timeout=30)
    remove_placement_group(group)


def test_children_are_captured_if_asked():
    """The group has all CPUs: what does not run in it does not run while it is there."""
    group = placement_group([{"CPU": 2}, {"CPU": 2}])
    assert group.wait(60)

    @manta.remote
    def group_id():
        here = get_current_placement_group()
        return here.id if here is not None else None

    @manta.remote(num_cpus=1)
    class Member:
        def group_id(self):
            assert manta.get_runtime_context().get_placement_group_id() == manta.get(group_id.remote(), timeout=60)
            return manta.get(group_id.remote(), timeout=60)

    @manta.remote
    def items():
        yield manta.get(group_id.remote(), timeout=60)

    @manta.remote
    def grandchild():
        return manta.get(group_id.remote(), timeout=60)

    @manta.remote
    def parent():
        member = Member.remote()
        refs = [group_id.remote(), grandchild.remote(), member.group_id.remote(), next(items.remote())]
        out = manta.get(refs, timeout=60)
        # Who says where it runs is not captured.
        outside = group_id.options(scheduling_strategy="DEFAULT", num_cpus=0.5).remote()
        return out, manta.wait([outside], timeout=0.3)[0] == []

    capture = PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)
    inside, waits = manta.get(parent.options(scheduling_strategy=capture).remote(), timeout=100)
    assert inside == [group.id] * 4 and waits
    member = Member.options(scheduling_strategy=capture).remote()
    assert manta.get(member.group_id.remote(), timeout=100) == group.id
    del member

    # Without, a child runs outside, where no CPU is left.
    @manta.remote
    def alone():
        child = group_id.options(num_cpus=0.5).remote()
        return get_current_placement_group().id, manta.wait([child], timeout=0.3)[0] == []

    plain = PlacementGroupSchedulingStrategy(group)
    assert manta.get(alone.options(scheduling_strategy=plain).remote(), timeout=100) == (group.id, True)
    remove_placement_group(group)
    assert get_current_placement_group() is None
    assert manta.get(group_id.remote(), timeout=100) is None
    with pytest.raises(ValueError, match="capture"):
        PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks="yes")


def test_node_affinity():
    (node,) = manta.nodes()
    here = where.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False))
    assert manta.get(here.remote(), timeout=20) == node["NodeID"]
    nowhere = where.options(scheduling_strategy=NodeAffinitySchedulingStrategy("no-such-node", soft=False))
    with pytest.raises(exceptions.MantaError):
        manta.get(nowhere.remote(), timeout=20)
    soft = where.options(scheduling_strategy=NodeAffinitySchedulingStrategy("no-such-node", soft=True))
    assert manta.get(soft.remote(), timeout=20) == node["NodeID"]


@pytest.mark.parametrize(("hard", "runs"), [
    ({"zone": In("a", "b")}, True), ({"zone": In("b")}, False), ({"zone": NotIn("b")}, True),
    ({"disk": Exists()}, True), ({"gpu": DoesNotExist()}, True), ({"gpu": Exists()}, False),
    ({"zone": In("a"), "disk": In("hdd")}, False),
])
def test_labels(hard, runs):
    task = where.options(scheduling_strategy=NodeLabelSchedulingStrategy(hard))
    actor = Actor.options(scheduling_strategy=NodeLabelSchedulingStrategy(hard)) if runs else None
    if not runs:
        with pytest.raises(exceptions.InfeasibleError):
            manta.get(task.remote(), timeout=20)
        return
    assert manta.get([task.remote(), actor.remote().where.remote()], timeout=20)


def test_label_selector_and_preferences():
    assert manta.get(where.options(label_selector={"zone": "in(a, b)", "disk": "!hdd"}).remote(), timeout=20)
    with pytest.raises(exceptions.InfeasibleError):
        manta.get(where.options(label_selector={"zone": "!a"}).remote(), timeout=20)
    prefer = NodeLabelSchedulingStrategy(hard={"zone": In("a")}, soft={"gpu": Exists()})
    assert manta.get(where.options(scheduling_strategy=prefer).remote(), timeout=20)
    assert manta.nodes()[0]["Labels"]["zone"] == "a"


def test_spread_and_default_run():
    assert len(manta.get([where.options(scheduling_strategy="SPREAD").remote() for _ in range(4)], timeout=20)) == 4
    assert manta.get(Actor.options(scheduling_strategy="SPREAD").remote().where.remote(), timeout=20)


def test_wrong_strategies_raise():
    for wrong in ("ELSEWHERE", 1, object()):
        with pytest.raises((ValueError, TypeError), match="scheduling_strategy"):
            where.options(scheduling_strategy=wrong)
    with pytest.raises(ValueError):
        NodeLabelSchedulingStrategy({})
    with pytest.raises(ValueError):
        NodeLabelSchedulingStrategy({"zone": 1})
    with pytest.raises(ValueError):
        In()
    with pytest.raises(ValueError):
        NodeAffinitySchedulingStrategy("", soft=False)


def test_a_group_is_an_option_of_its_own_name():
    group = placement_group([{"CPU": 1}])
    inside = manta.remote(lambda: get_current_placement_group())
    assert manta.get(inside.options(placement_group=group).remote(), timeout=30) == group
    assert manta.get(inside.options(placement_group=group, placement_group_bundle_index=0).remote()) == group
    assert manta.get(inside.options(placement_group=None).remote(), timeout=30) is None
    with pytest.raises(ValueError, match="scheduling_strategy"):
        inside.options(placement_group=group, scheduling_strategy="SPREAD")
    with pytest.raises(ValueError, match="placement_group_bundle_index"):
        inside.options(placement_group=group, placement_group_bundle_index=3)
    remove_placement_group(group)


def test_a_removed_group_stays_in_the_table():
    group = placement_group([{"CPU": 1}], name="was-here")
    assert group.wait(20) and isinstance(group.id, manta.PlacementGroupID)
    remove_placement_group(group)
    remove_placement_group(group)
    assert placement_group_table(group)["state"] == "REMOVED"
    assert placement_group_table()[group.id]["name"] == "was-here"


@pytest.mark.parametrize("selector", [{"a": "in()"}, {"a": "!in(a,b"}, {"": "x"}, {"a": "b c"}, {"a b": "c"},
                                      {"a": "x" * 70}, {"a": "in(a,)"}, {"a": "-b"}, {"a": "!"}])
def test_a_label_selector_is_checked(selector):
    with pytest.raises(ValueError, match="label_selector"):
        where.options(label_selector=selector)


def test_a_fallback_is_used_when_no_node_has_the_label():
    somewhere = where.options(label_selector={"zone": "nowhere"},
                              fallback_strategy=[{"label_selector": {"zone": "nor-here"}},
                                                 {"label_selector": {"zone": "!moon"}}])
    assert manta.get(somewhere.remote(), timeout=30)
    with pytest.raises(TypeError, match="fallback_strategy"):
        where.options(fallback_strategy="x")
    with pytest.raises(ValueError, match="fallback_strategy"):
        where.options(fallback_strategy=[{"num_cpus": 1}])
