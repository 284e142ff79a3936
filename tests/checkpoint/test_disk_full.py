"""A disk without space: what was saved stays, and nothing is left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockstep.checkpoint import CheckpointStore, load_newest
from tests.checkpoint.support import other

# Files of more than 100 kB cannot be written; Python turns the signal into an error.
FULL = """
import resource, sys, numpy
from lockstep.checkpoint import CheckpointStore
from lockstep.errors import CheckpointError
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
with CheckpointStore(sys.argv[1], keep_max=1) as store:
    store.save(2, {f"w{n}": numpy.ones(int(sys.argv[2])) for n in range(int(sys.argv[3]))})
    try:
        store.wait()
    except CheckpointError as error:
        print(error)
    store.save(3, {"w": numpy.full(10, 3.0)})
print("saved")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("size", "count"), [(1_000_000, 1), (100, 115), (0, 480)], ids=["array", "parts", "names"])
def test_disk_full(tmp_path: Path, size: int, count: int) -> None:
    with CheckpointStore(tmp_path) as store:
        store.save(1, {"w": 1.0})
    with other(FULL, tmp_path, size, count) as writer:
        message = writer.hear()
        assert f"{tmp_path}/model.ckpt-2.npz could not be written: [Errno 27] File too large" in message
        assert "saved before are intact" in message
        assert writer.hear() == "saved"
        assert writer.finish() == []
    assert sorted(os.listdir(tmp_path)) == ["checkpoint", "model.ckpt-3.npz"]
    found = load_newest(tmp_path)
    assert found is not None
    assert found.arrays["w"].sum() == 30


# The checkpoint just fits; the file that lists it does not.
NO_LIST = """
import os, sys, numpy
from lockstep.checkpoint import CheckpointStore, _state
from lockstep.errors import CheckpointError
store = CheckpointStore(sys.argv[1], keep_max=1)
store.save(2, {"w": 2.0})
store.wait()
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
_state._line = lambda *_: "x" * 10_000_000
store.save(3, {"w": 3.0})
try:
    store.wait()
except CheckpointError as error:
    print(error)
"""


@pytest.mark.slow
def test_no_space_for_the_list(tmp_path: Path) -> None:
    with other(NO_LIST, tmp_path) as writer:
        assert f"{tmp_path}/checkpoint could not be written: [Errno 27]" in writer.hear()
        writer.finish()
    # The old one is not removed before the new one is listed.
    assert sorted(os.listdir(tmp_path)) == ["checkpoint", "model.ckpt-2.npz", "model.ckpt-3.npz"]
    found = load_newest(tmp_path)
    assert found is not None
    assert found.step == 2
