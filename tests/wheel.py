#!/usr/bin/env python3
"""The wheel as a user meets it: built, looked into, installed in a fresh environment, and made a cluster of two hosts.

    wheel.py SOURCE BUILD PYTHON

The hosts are network namespaces, so the nodes speak TLS: a wheel without libmanta_tls.so fails here. Exit code 77 is
CTest's "skipped": PyPI cannot be reached, or this user may not make network namespaces.
"""
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

SKIPPED = 77
source, build, python = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
folder = build / "wheel-test"
secrets = Path(os.environ["TMPDIR"])
address = "10.99.0.1:6400"
DRIVER = """
import manta
manta.init()
@manta.remote(resources={"far": 1})
def double(data):
    return bytes(data) * 2
assert manta.get(double.remote(b"x" * 3_000_000)) == b"x" * 6_000_000
print("nodes:", len(manta.nodes()))
manta.shutdown()
"""


def run(*words, check=True, **options):
    result = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    if check and result.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))} ended with {result.returncode}:\n{result.stdout}{result.stderr}")
    return result


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def make_wheel():
    for old in folder.glob("*.whl"):
        old.unlink()
    made = run(source / "scripts/wheel", "--debug", "--out", folder, python, check=False)
    if made.returncode == SKIPPED:
        skip(made.stderr)
    if made.returncode != 0:
        sys.exit(made.stdout + made.stderr)
    (wheel,) = folder.glob("*.whl")
    return wheel


def look_into(wheel):
    """Complete, each library once, under the distribution's own name, and for every newer Linux."""
    names = zipfile.ZipFile(wheel).namelist()
    for pattern in (r"manta/lib/libmanta\.so[.\d]*", r"manta/lib/libmanta_tls\.so", r"manta/bin/mantad", r"manta/bin/manta",
                    r"manta/bin/manta-control", r"manta/_core\..*\.so"):
        found = [name for name in names if re.fullmatch(pattern, name)]
        assert len(found) == 1, f"{pattern}: {found} in {names}"
    copies = [name for name in names if re.search(r"libmanta\b[^_]*\.so", name)]
    assert len(copies) == 1, f"libmanta is in the wheel {len(copies)} times: {copies}"
    assert wheel.name.startswith("manta_engine-"), wheel
    assert "manylinux" in wheel.name, wheel


def install(wheel):
    fresh = folder / "venv"
    run(python, "-m", "venv", "--clear", fresh)
    installed = run(fresh / "bin/pip", "install", "-q", "--disable-pip-version-check", wheel, check=False)
    if installed.returncode != 0:
        if "cloudpickle" in installed.stderr:
            skip(installed.stderr)
        sys.exit(installed.stderr)
    return fresh / "bin"


class Hosts:
    """Two network namespaces with a cable between them."""

    def __init__(self):
        self.names = [f"manta-{os.getpid()}-{number}" for number in (0, 1)]

    def __enter__(self):
        for name in self.names:
            if (made := run("ip", "netns", "add", name, check=False)).returncode != 0:
                skip(made.stderr)
        run("ip", "-n", self.names[0], "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", self.names[1])
        for number, name in enumerate(self.names):
            run("ip", "-n", name, "address", "add", f"10.99.0.{number + 1}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                run("ip", "-n", name, "link", "set", link, "up")
        return self

    def __exit__(self, *_):
        for name in self.names:
            run("ip", "netns", "del", name, check=False)

    def on(self, number, *words, **options):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MANTA"))}
        environment["MANTA_SECRETS"] = str(secrets / f"host{number}")
        return run("ip", "netns", "exec", self.names[number], *words, env=environment, timeout=60, **options).stdout


def form_cluster(programs):
    manta = programs / "manta"
    with Hosts() as hosts:
        try:
            said = hosts.on(0, manta, "start", "--head", "--listen", address, "--cpus", "1")
            assert "TLS" in said, said
            token = hosts.on(0, manta, "token")
            hosts.on(1, manta, "start", "--join", address, "--token-file", "-", "--cpus", "1", "--resource", "far=1", input=token)
            said = hosts.on(0, programs / "python", "-c", DRIVER, cwd="/")
            assert said.splitlines()[-1] == "nodes: 2", said
        finally:
            for number in (1, 0):
                hosts.on(number, manta, "stop", check=False)


folder.mkdir(exist_ok=True)
wheel = make_wheel()
look_into(wheel)
form_cluster(install(wheel))
for number in (0, 1):
    run("rm", "-rf", secrets / f"host{number}")
print(wheel.name)
