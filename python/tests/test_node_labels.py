"""Nodes as Ray's programs see them: without CPUs, their labels and ids, the dead ones, names of actors."""
import os

import pytest

import manta
from manta.util.scheduling_strategies import (
    In,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    NotIn,
)

pytestmark = pytest.mark.usefixtures("nodes")


@manta.remote
def where():
    return manta.get_runtime_context().get_node_id()


def row(name):
    return next(node for node in manta.nodes() if node["NodeID"] == name)


def test_a_node_is_reached_by_the_label_of_its_id(nodes):
    name = nodes.join()
    labels = row(name)["Labels"]
    assert labels["ray.io/node-id"] == labels["manta.io/node-id"] == name
    for key in ("ray.io/node-id", "manta.io/node-id"):
        assert manta.get(where.options(label_selector={key: name}).remote()) == name
        assert manta.get(where.options(label_selector={key: f"!{name}"}).remote()) != name
        there = NodeLabelSchedulingStrategy(hard={key: In(name)})
        assert manta.get(where.options(scheduling_strategy=there).remote()) == name
        elsewhere = NodeLabelSchedulingStrategy(hard={key: NotIn(name)})
        assert manta.get(where.options(scheduling_strategy=elsewhere).remote()) != name
    for node in manta.nodes():
        if node["Alive"]:
            pinned = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            assert manta.get(where.options(scheduling_strategy=pinned).remote()) == node["NodeID"]
    seen = manta.get(where.options(label_selector={"ray.io/node-id": name}).remote())
    assert seen == name


def test_a_dead_node_is_listed_as_dead(nodes, eventually):
    name = nodes.join("doomed")
    assert row(name)["Alive"] is True and row(name)["alive"] is True
    assert manta.cluster_resources()["doomed"] == 1
    nodes.kill(name)
    assert eventually(lambda: row(name)["Alive"] is False)
    dead = row(name)
    assert dead["alive"] is False and dead["Resources"] == {} and dead["DeathReasonMessage"]
    assert "doomed" not in manta.cluster_resources()
    assert row("n1")["Alive"] is True
    nodes.start("--join", nodes.lines()[0][1], "--name", name)
    assert row(name)["Alive"] is True  # a new node of the same name stands for both
    nodes.kill(name)
    assert eventually(lambda: row(name)["Alive"] is False)
    assert len({node["NodeID"] for node in manta.nodes()}) == len(manta.nodes())
    assert isinstance(manta.timeline(), list)  # asks the live ones only


def test_a_node_without_cpus_runs_what_needs_none(nodes):
    nodes.count += 1
    name = f"n{nodes.count}"
    nodes.manta("start", "--join", nodes.lines()[0][1], "--name", name, "--cpus", "0", "--resource", "nocpu=1",
                "--store-bytes", str(64 << 20))
    assert row(name)["Resources"].get("CPU", 0) == 0
    on_it = {"num_cpus": 0, "resources": {"nocpu": 0.1}}
    assert manta.get(where.options(**on_it).remote()) == name

    @manta.remote(**on_it)
    class Actor:
        def where(self):
            return manta.get_runtime_context().get_node_id()

    assert manta.get(Actor.remote().where.remote()) == name
    # A task of one CPU goes elsewhere, whatever the load.
    assert name not in manta.get([where.remote() for _ in range(20)])


def test_resources_name_the_nodes_and_their_stores():
    resources = manta.cluster_resources()
    hosts = [key for key in resources if key.startswith("node:")]
    assert f"node:{row('n1')['NodeManagerAddress']}" in hosts and "node:__internal_head__" in hosts
    assert resources["object_store_memory"] >= 128 << 20
    assert row("n1")["Resources"]["object_store_memory"] == 128 << 20
    head = where.options(resources={"node:__internal_head__": 0.001}).remote()
    assert manta.get(head) == "n1"


def test_bundles_go_where_their_labels_match(nodes):
    nodes.count += 1
    name = f"n{nodes.count}"
    nodes.manta("start", "--join", nodes.lines()[0][1], "--name", name, "--cpus", "2", "--label", "zone=far",
                "--store-bytes", str(64 << 20))
    group = manta.util.placement_group([{"CPU": 1}, {"CPU": 1}],
                                       bundle_label_selector=[{"zone": "far"}, {"ray.io/node-id": "n1"}])
    assert group.wait(30)
    table = manta.util.placement_group_table(group)
    assert table["bundles_to_node_id"] == {0: name, 1: "n1"}
    manta.util.remove_placement_group(group)
    nowhere = manta.util.placement_group([{"CPU": 1}], bundle_label_selector=[{"zone": "nowhere"}])
    assert not nowhere.wait(0.05)
    manta.util.remove_placement_group(nowhere)
    with pytest.raises(ValueError, match="2 entries for 1 bundles"):
        manta.util.placement_group([{"CPU": 1}], bundle_label_selector=[{}, {}])
    with pytest.raises(TypeError, match="list of dictionaries"):
        manta.util.placement_group([{"CPU": 1}], bundle_label_selector=["zone"])


@manta.remote
class Named:
    def pid(self):
        return os.getpid()


def test_named_actors_are_listed(nodes, eventually):
    first = Named.options(name="listed").remote()
    other = Named.options(name="elsewhere", namespace="others").remote()
    manta.get([first.pid.remote(), other.pid.remote()])
    assert "listed" in manta.util.list_named_actors()
    assert "elsewhere" not in manta.util.list_named_actors()
    everywhere = manta.util.list_named_actors(all_namespaces=True)
    assert {"name": "elsewhere", "namespace": "others"} in everywhere
    assert {"name": "listed", "namespace": "several"} in everywhere
    manta.kill(first)
    assert eventually(lambda: "listed" not in manta.util.list_named_actors())


def test_a_new_cluster_in_an_old_folder_calls_its_first_node_n1(tmp_path):
    import subprocess

    def run(*words):
        command = [os.path.join(os.path.dirname(manta.__file__), "bin", "manta"), "--secrets", str(tmp_path), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    for _ in range(2):
        run("start", "--head", "--listen", "127.0.0.1:0", "--cpus", "1", "--store-bytes", str(64 << 20))
        try:
            assert run("nodes").splitlines()[-1].split()[1] == "n1"
        finally:
            run("stop")
    log = "".join(open(tmp_path / "logs" / name).read() for name in os.listdir(tmp_path / "logs"))
    import re

    assert re.search(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} I manta-control: node n1 ", log, re.M), log


def test_tasks_are_counted_where_they_ran(nodes):
    import json

    name = nodes.join("counted")
    assert manta.get([where.options(num_cpus=0, resources={"counted": 0.1}).remote() for _ in range(7)]) == [name] * 7
    address = next(line[-2] for line in nodes.lines() if line[0] == "node" and line[-1] == name)
    (status,) = json.loads(nodes.manta("status", "--json", "--address", address))
    assert status["node"] == name and status["tasks_finished"] >= 7
    assert status["cluster"] == nodes.lines()[0][1]


def test_status_shows_the_nodes_of_a_cluster_together(nodes):
    head = nodes.lines()[0][1]
    lines = nodes.manta("status").splitlines()
    (at,) = (number for number, line in enumerate(lines) if line == f"cluster {head}")
    own = []
    for line in lines[at + 1:]:
        if line.startswith(("cluster", "private")):
            break
        if line.startswith("node "):
            own.append(line.split()[1])
    assert set(own) == {node["NodeID"] for node in manta.nodes() if node["Alive"]}
    assert not any("node:" in line for line in lines)


def test_what_a_detached_actor_prints_later_is_in_a_log(nodes, run_script, eventually):
    run_script("""
import manta
manta.init(address="auto", namespace="several")

@manta.remote
class Talker:
    def say(self, text):
        print(text)

talker = Talker.options(name="talker", lifetime="detached").remote()
manta.get(talker.say.remote("while its program lives"))
""")
    talker = manta.get_actor("talker")
    manta.get(talker.say.remote("words of nobody"))
    logs = os.path.join(nodes.secrets, "logs")
    told = lambda: any("words of nobody" in open(os.path.join(logs, name)).read() for name in os.listdir(logs))  # noqa
    assert eventually(told)
    manta.kill(talker)
