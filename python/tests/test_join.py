"""Programs that join a cluster: which one, where their work runs in it, and how they go on after a crash."""
import subprocess
import sys

import pytest

import manta
from manta import exceptions
from manta.util import placement_group, remove_placement_group
from manta.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

INIT = """
import manta
for words in {words}:
    manta.init(**words)
    print("joined" if "started" in manta.cluster_resources() else "private")
    manta.shutdown()
"""


@manta.remote
def where():
    return manta.get_runtime_context().get_node_id()


def inits(run_script, *words):
    return run_script(INIT.format(words=repr(words))).stdout.split()


def test_init_joins_the_cluster_of_this_machine(nodes, run_script):
    words = {}, {"namespace": "mine"}, {"address": "auto"}, {"quota": {"CPU": 1}}
    assert inits(run_script, *words) == ["joined"] * len(words)


def test_the_first_use_joins_it_too(nodes, run_script):
    run_script("""
import manta
assert manta.get(manta.put(3)) == 3
assert "started" in manta.cluster_resources()
""")


def test_who_says_how_large_it_is_to_be_has_a_cluster_of_its_own(nodes, run_script, tmp_path):
    words = ({"address": "local"}, {"num_cpus": 7}, {"num_gpus": 1}, {"resources": {"gold": 1}}, {"labels": {"a": "b"}},
             {"object_store_memory": 100 << 20}, {"lineage_memory": 1 << 20}, {"_temp_dir": str(tmp_path)})
    assert inits(run_script, *words) == ["private"] * len(words)


def test_the_environment_names_a_cluster(nodes, run_script, monkeypatch, tmp_path):
    address = next(word for line in nodes.lines() if line[0] == "node" for word in line if word.startswith("@"))
    monkeypatch.setenv("MANTA_SECRETS", str(tmp_path))  # it is not found, but named
    assert inits(run_script, {}) == ["private"]
    monkeypatch.setenv("MANTA_ADDRESS", address)
    assert inits(run_script, {}, {"address": "local", "num_cpus": 1}) == ["joined", "private"]
    refused = run_script(INIT.format(words=[{"num_cpus": 1}]), check=False)
    assert refused.returncode != 0 and "MANTA_ADDRESS" in refused.stderr and "local" in refused.stderr


def test_memory_is_a_resource_of_a_node_that_was_started(nodes):
    assert manta.cluster_resources()["memory"] > 1 << 30
    assert manta.get(where.options(memory=1 << 20).remote(), timeout=60)
    with pytest.raises(exceptions.InfeasibleError, match="memory"):
        manta.get(where.options(memory=1 << 45).remote(), timeout=60)


def test_a_job_that_crashed_is_resumed(nodes, run_script, tmp_path):
    log = tmp_path / "log"

    def ran():
        return len(log.read_text().split())

    def run(resume, crash):
        return run_script(f"""
import os
import manta

manta.init(job="weekly", resume={resume})
assert "started" in manta.cluster_resources()

@manta.remote
def square(x):
    with open({str(log)!r}, "a") as file:
        file.write("ran\\n")
    return x * x

@manta.remote
def total(numbers):
    with open({str(log)!r}, "a") as file:
        file.write("ran\\n")
    return sum(numbers)

kept = manta.put(b"k" * 1_000_000, durable=True)
first = manta.get([square.remote(i) for i in range(5)])
assert manta.get(total.remote([*first, len(manta.get(kept))])) == 1_000_030
manta.commit()
if {crash}:
    os.kill(os.getpid(), 9)
print(manta.get(total.remote(manta.get([square.remote(i) for i in range(5, 8)]))))
""", check=not crash)

    assert run(resume=False, crash=True).returncode == -9
    assert ran() == 6
    assert run(resume=True, crash=False).stdout == "110\n" and ran() == 6 + 4


def test_a_job_whose_last_run_is_not_over_is_waited_for(nodes, tmp_path, eventually):
    def start(name, text):
        path = tmp_path / name
        path.write_text("import time\nimport manta\n" + text)
        return subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    sign = tmp_path / "runs"
    first = start("first.py", f"""
manta.init(job="daily")
open({str(sign)!r}, "w").close()
time.sleep(1000)
""")
    try:
        assert eventually(sign.exists)
        second = start("second.py", 'manta.init(job="daily", resume=True)\nprint("resumed")\n')
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(2)
    finally:
        first.kill()
        first.communicate()
    assert second.communicate(timeout=100)[0] == "resumed\n" and second.returncode == 0


def test_spread_uses_several_nodes(nodes):
    nodes.join()
    spread = where.options(scheduling_strategy="SPREAD")
    # One by one: without the wish all would stay here. More than two, since the new node may not be known yet.
    assert len({manta.get(spread.remote(), timeout=100) for _ in range(30)}) > 1


def test_a_node_is_named(nodes):
    name = nodes.join()
    there = where.options(scheduling_strategy=NodeAffinitySchedulingStrategy(name, soft=False))
    assert manta.get([there.remote() for _ in range(3)], timeout=100) == [name] * 3


@pytest.mark.parametrize(("strategy", "count"), [("STRICT_SPREAD", 2), ("SPREAD", 2), ("STRICT_PACK", 1), ("PACK", 1)])
def test_where_the_bundles_of_a_group_are(nodes, strategy, count):
    while len(manta.nodes()) < 2:
        nodes.join()
    group = placement_group([{"CPU": 1}] * 2, strategy=strategy)
    assert group.wait(100)
    bundles = [PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index) for index in range(2)]
    names = manta.get([where.options(scheduling_strategy=bundle).remote() for bundle in bundles], timeout=100)
    remove_placement_group(group)
    assert len(set(names)) == count
