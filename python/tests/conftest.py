import os
import signal
import subprocess
import sys
import time

import pytest

import manta


@pytest.fixture(scope="session", autouse=True)
def alone(tmp_path_factory):
    """No test joins a cluster that somebody else, or another test, has started on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANTA_SECRETS", str(tmp_path_factory.mktemp("alone")))
        patch.delenv("MANTA_ADDRESS", raising=False)
        yield


@pytest.fixture(scope="module")
def cluster():
    """One cluster for the tests of a module."""
    manta.init(num_cpus=4, resources={"disk": 2}, ignore_reinit_error=True)
    yield
    manta.shutdown()


@pytest.fixture
def run_script(tmp_path):
    """Runs a program of its own, as a user would, and gives what it printed."""

    def run(text, *, timeout=60, check=True):
        path = tmp_path / "script.py"
        path.write_text(text)
        done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=timeout,
                              env=dict(os.environ))
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


@pytest.fixture(scope="session")
def eventually():
    """Looks until it is so; the time is for the slowest machine, and nobody waits for it to pass."""

    def look(condition, seconds=60):
        deadline = time.time() + seconds
        while not condition() and time.time() < deadline:
            time.sleep(0.01)
        return condition()

    return look


class Nodes:
    """A cluster of several nodes on this machine, started by the command line as a user would."""

    def __init__(self, secrets):
        self.secrets = str(secrets)
        self.count = 1
        self.start("--head", "--listen", "127.0.0.1:0", "--name", "n1", "--resource", "started=1")

    def manta(self, *words, check=True):
        command = [os.path.join(os.path.dirname(manta.__file__), "bin", "manta"), "--secrets", self.secrets, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, *words):
        self.manta("start", *words, "--cpus", "2", "--store-bytes", str(128 << 20))

    def lines(self):
        with open(os.path.join(self.secrets, "cluster")) as file:
            return [line.split() for line in file]

    def join(self, *resources):
        """Another node; its name."""
        self.count += 1
        name = f"n{self.count}"
        self.start("--join", self.lines()[0][1], "--name", name,
                   *[word for resource in resources for word in ("--resource", f"{resource}=1")])
        return name

    def kill(self, name):
        """Its daemon, and with it all that runs there."""
        (pid,) = (int(line[1]) for line in self.lines() if line[0] == "node" and line[-1] == name)
        os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """A cluster of one node, "n1", to which this program is connected; tests add others."""
    patch = pytest.MonkeyPatch()
    secrets = tmp_path_factory.mktemp("secrets")
    patch.setenv("MANTA_SECRETS", str(secrets))
    patch.delenv("MANTA_ADDRESS", raising=False)
    patch.setenv("MANTA_INFEASIBLE_SECONDS", "0")  # of daemons: fails at once what no node can hold
    made = Nodes(secrets)
    try:
        manta.init(address="auto", namespace="several")
        yield made
    finally:
        manta.shutdown()
        made.manta("stop", check=False)
        patch.undo()
