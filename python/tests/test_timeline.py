"""manta.timeline(): when tasks and methods ran, as events for a trace viewer."""
import json
import os
import time

import pytest

import manta

pytestmark = pytest.mark.usefixtures("cluster")


def test_events_of_tasks_and_methods(tmp_path):
    @manta.remote
    def traced_nap():
        time.sleep(0.05)
        return os.getpid()

    @manta.remote
    def traced_failure():
        raise ValueError

    @manta.remote
    class Traced:
        def method(self):
            return 1

        async def later(self):
            import asyncio

            await asyncio.sleep(0.02)

    before = time.time() * 1e6
    pid = manta.get(traced_nap.remote())
    with pytest.raises(ValueError):
        manta.get(traced_failure.remote())
    actor = Traced.remote()
    manta.get([actor.method.remote(), actor.later.remote()])
    events = {event["name"]: event for event in manta.timeline() if event["ph"] == "X"}
    nap = events["traced_nap"]
    assert nap["args"]["worker"] == pid and before <= nap["ts"] <= time.time() * 1e6 and 50_000 <= nap["dur"] < 50e6
    assert events["traced_failure"]["args"]["failed"] and not nap["args"]["failed"]
    assert "Traced.method" in events and events["Traced.later"]["dur"] >= 20_000

    path = tmp_path / "trace.json"
    assert manta.timeline(str(path)) is None
    assert any(event["name"] == "traced_nap" for event in json.loads(path.read_text()))


def test_what_a_dead_worker_did_stays():
    @manta.remote(max_calls=1)
    def last_words():
        return os.getpid()

    pid = manta.get(last_words.remote())
    while os.path.exists(f"/proc/{pid}"):
        time.sleep(0.01)
    assert any(event["name"] == "last_words" for event in manta.timeline())


def test_it_can_be_turned_off(run_script, monkeypatch):
    monkeypatch.setenv("MANTA_TIMELINE", "0")
    run_script("""
import manta
@manta.remote
def f(): pass
manta.get(f.remote())
assert [event for event in manta.timeline() if event["ph"] == "X"] == []
""")
