import os
import sys

import pytest

import manta


@pytest.fixture(scope="module")
def cluster():
    """One cluster for the tests of a module."""
    manta.init(num_cpus=4, resources={"disk": 2}, ignore_reinit_error=True)
    yield
    manta.shutdown()


@pytest.fixture
def run_script(tmp_path):
    """Runs a program of its own, as a user would, and gives what it printed."""
    import subprocess

    def run(text, *, timeout=60, check=True):
        path = tmp_path / "script.py"
        path.write_text(text)
        done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=timeout,
                              env=dict(os.environ))
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run
