"""manta.cluster_utils.Cluster"""
import os

import pytest

import manta
from manta.cluster_utils import Cluster
from manta.util.scheduling_strategies import NodeAffinitySchedulingStrategy


@manta.remote
def where():
    return manta.get_runtime_context().get_node_id()


@pytest.fixture
def cluster():
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    yield made
    manta.shutdown()
    made.shutdown()


def live():
    return {node["NodeID"] for node in manta.nodes() if node["Alive"]}


def test_nodes_come_and_go(cluster):
    worker = cluster.add_node(num_cpus=2, resources={"disk": 1}, labels={"zone": "a"}, object_store_memory=64 << 20)
    manta.init(address=cluster.address)
    cluster.wait_for_nodes()
    assert live() == {cluster.head_node.node_id, worker.node_id}
    assert manta.cluster_resources()["CPU"] == 2
    # The head's node has no CPU, so that all tasks run on the other.
    assert set(manta.get([where.remote() for _ in range(4)])) == {worker.node_id}
    assert manta.get(where.options(num_cpus=0, label_selector={"zone": "a"}).remote()) == worker.node_id
    second = cluster.add_node(num_cpus=1)
    pinned = NodeAffinitySchedulingStrategy(second.node_id, soft=False)
    assert manta.get(where.options(scheduling_strategy=pinned).remote()) == second.node_id
    cluster.remove_node(second)
    cluster.remove_node(worker, allow_graceful=False)
    assert live() == {cluster.head_node.node_id}
    assert {node["NodeID"] for node in manta.nodes() if not node["Alive"]} == {worker.node_id, second.node_id}
    with pytest.raises(manta.exceptions.TaskUnschedulableError, match=f"node {second.node_id} is not among them"):
        manta.get(where.options(num_cpus=0, scheduling_strategy=pinned).remote(), timeout=60)
    with pytest.raises(ValueError, match="no node of this cluster"):
        cluster.remove_node(second)
    with pytest.raises(ValueError, match="head's node"):
        cluster.remove_node(cluster.head_node)


def test_a_task_waits_for_a_node_that_can_hold_it(cluster):
    manta.init(address=cluster.address)
    waiting = where.remote()
    assert manta.wait([waiting], timeout=0.05) == ([], [waiting])
    added = cluster.add_node(num_cpus=1)
    assert manta.get(waiting, timeout=60) == added.node_id


def test_nothing_is_left_of_a_cluster():
    before = os.environ.get("MANTA_SECRETS")
    made = Cluster()
    assert made.address == "" and made.list_all_nodes == []
    node = made.add_node(num_cpus=1)
    folder = os.environ["MANTA_SECRETS"]
    assert node.is_head() and node.alive() and os.path.isdir(folder)
    with pytest.raises(NotImplementedError, match="wings"):
        made.add_node(wings=2)
    made.shutdown()
    assert not node.alive() and not os.path.exists(folder)
    assert os.environ.get("MANTA_SECRETS") == before
    with pytest.raises(RuntimeError, match="needs initialize_head"):
        Cluster(connect=True)
