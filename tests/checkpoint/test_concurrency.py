"""Readers while a writer of another process saves and removes as fast as it can."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.checkpoint import all_checkpoints, latest_checkpoint, load, load_newest, load_variable, pinned, step_of
from lockstep.errors import CheckpointError
from tests.checkpoint.support import Other, other

WRITER = """
import sys, threading, numpy
from lockstep.checkpoint import CheckpointStore
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
with CheckpointStore(sys.argv[1], keep_max=1) as store:
    step = 0
    while not stop.is_set():
        store.save(step, {"w": numpy.full(20_000, step, float)})
        if step == 0:
            store.wait()
            print("began", flush=True)
        step += 1
print(step - 1, flush=True)
"""


def stop(writer: Other) -> int:
    writer.tell()
    return int(writer.hear())


@pytest.mark.slow
def test_the_newest_is_always_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    last, looks = -1, 0
    with other(WRITER, tmp_path) as writer:
        assert writer.hear() == "began"
        # However seldom the writer has its turn: one of its later saves must have been seen.
        while (looks := looks + 1) <= 150 or last < 1:
            assert writer.process.poll() is None
            found = load_newest(tmp_path)
            assert found is not None
            assert (found.arrays["w"] == found.step).all()
            assert found.step >= last
            last = found.step
            prefix = latest_checkpoint(tmp_path)
            assert prefix is not None
            assert step_of(prefix) >= last
            assert load_variable(tmp_path, "w").size == 20_000
            all_checkpoints(tmp_path)
        end = stop(writer)
    assert 0 < last <= end
    assert caplog.messages == []
    assert [step_of(prefix) for prefix in all_checkpoints(tmp_path)] == [end]


@pytest.mark.slow
def test_what_is_pinned_stays(tmp_path: Path) -> None:
    pins, gone = 0, 0
    with other(WRITER, tmp_path) as writer:
        assert writer.hear() == "began"
        while pins < 60:
            prefix = latest_checkpoint(tmp_path)
            assert prefix is not None
            try:
                with pinned(prefix):
                    pins += 1
                    for _ in range(3):
                        assert (load(prefix).arrays["w"] == step_of(prefix)).all()
            except CheckpointError as error:
                # Between its being the newest and the pin; never afterwards.
                assert "cannot be pinned" in str(error)
                gone += 1
                assert gone < 10_000
        end = stop(writer)
    assert [step_of(prefix) for prefix in all_checkpoints(tmp_path)][-1] == end
