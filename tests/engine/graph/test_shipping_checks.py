"""What cannot be sent to the executors is refused when the job is planned, and not found by a region that fails."""

from __future__ import annotations

import threading

import pytest

from snapshot_engine.graph.job_plan import plan
from snapshot_engine.wire.spec import StreamingJob


def test_a_function_that_uses_a_lock_is_refused_at_its_line(problems, rows, discard):
    def pipeline(env):
        lock = threading.Lock()
        stream = env.from_source(rows(), uid="orders")
        stream.map(lambda row: (lock, row)[1]).name("locked").sink_to(discard(), uid="out")  # line of the problem

    (problem,) = problems(pipeline)
    line = pipeline.__code__.co_firstlineno + 3
    assert f"test_shipping_checks.py:{line}: 'locked': it cannot be sent to the executors: " in problem
    assert "cannot pickle '_thread.lock' object" in problem and "open(context)" in problem


def test_a_source_or_a_sink_that_holds_a_lock_is_refused(problems, rows, discard):
    def pipeline(env):
        source, sink = rows(), discard()
        source.lock = sink.lock = threading.Lock()
        env.from_source(source, name="orders", uid="orders").sink_to(sink, name="out", uid="out")

    assert ["'orders'" in problem or "'out'" in problem for problem in problems(pipeline)] == [True, True]


def test_a_source_whose_rows_the_driver_has_still_to_write_is_not_sent_yet(plan, rows, discard):
    class Staged(rows):
        def materialise(self, folder, restored):
            raise AssertionError("nothing is written while planning")

        def __getstate__(self):
            raise RuntimeError("not materialised")

    plan(lambda env: env.from_source(Staged(), uid="orders").sink_to(discard(), uid="out"))


@pytest.mark.parametrize("where", ["beside", "installed"])
def test_what_a_module_beside_the_manifest_holds_is_sent_with_its_functions(tmp_path, where, monkeypatch):
    """One that is installed is there already, lock and all."""
    (tmp_path / f"helpers_{where}.py").write_text(
        "import threading\n\nlock = threading.Lock()\n\n\ndef same(row):\n    with lock:\n        return row\n"
    )
    source = (
        f"from helpers_{where} import same\n"
        "from snapshot_engine.connectors.bids import bids\n"
        "from snapshot_engine.connectors.discard import DiscardSink\n"
        "def pipeline(env):\n"
        "    env.from_source(bids(keys=5), uid='bids').map(same).sink_to(DiscardSink(), uid='out')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path if where == "beside" else None
    entry = "job.py:pipeline" if where == "beside" else None
    (tmp_path / "job.py").write_text(source)
    pipeline = {"entrypoint": entry} if entry else {"source": source}
    manifest = {"metadata": {"name": "orders"}, "spec": {"pipeline": pipeline}}
    job = StreamingJob.model_validate({"apiVersion": "streamingjob.dev/v1alpha1", "kind": "StreamingJob", **manifest})
    if where == "installed":
        plan(job, folder=folder)
    else:
        with pytest.raises(Exception, match=r"job\.py:5: 'map same': it cannot be sent to the executors"):
            plan(job, folder=folder)
