"""The writer: in the background, one at a time, and its errors reach the caller."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lockstep.checkpoint import CheckpointStore, _archive, all_checkpoints, latest_checkpoint, load, load_newest
from lockstep.checkpoint import _directory as directory_module
from lockstep.errors import ArgumentError, CheckpointError

LIMIT = 120


class Gate:
    """Holds up every write until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.reached = threading.Event(), threading.Event()
        write = _archive.write
        monkeypatch.setattr(directory_module._archive, "write", lambda *a: self._held(write, *a))

    def _held(self, write: Callable[..., None], *arguments: Any) -> None:
        self.reached.set()
        assert self.open.wait(LIMIT)
        write(*arguments)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


def test_saving_does_not_wait_for_the_disk(tmp_path: Path, gate: Gate) -> None:
    with CheckpointStore(tmp_path) as store:
        prefix = store.save(1, {"w": np.ones(3)})
        assert gate.reached.wait(LIMIT)
        assert latest_checkpoint(tmp_path) is None
        gate.open.set()
        store.wait()
        assert latest_checkpoint(tmp_path) == prefix


def test_one_write_at_a_time(tmp_path: Path, gate: Gate) -> None:
    with CheckpointStore(tmp_path) as store:
        store.save(1, {})
        assert gate.reached.wait(LIMIT)
        second = threading.Thread(target=store.save, args=(2, {}))
        second.start()
        second.join(0.05)
        assert second.is_alive()
        gate.open.set()
        second.join(LIMIT)
        assert not second.is_alive()
        assert (tmp_path / "model.ckpt-1.npz").exists()
    assert len(all_checkpoints(tmp_path)) == 2


def test_arrays_may_be_changed_or_donated_at_once(tmp_path: Path, gate: Gate) -> None:
    mine, given = np.ones(1000), jnp.ones(1000)
    double = jax.jit(lambda x: x * 2, donate_argnums=0)
    with CheckpointStore(tmp_path) as store:
        prefix = store.save(1, {"mine": mine, "given": given, "view": mine[::2]}, extra := {"list": [1]})
        mine[:] = 2
        extra["list"].append(2)
        assert double(given)[0] == 2
        assert given.is_deleted()
        gate.open.set()
    found = load(prefix)
    assert all((array == 1).all() for array in found.arrays.values())
    assert found.extra == {"list": [1]}


def test_the_same_step_again_replaces_it(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path) as store:
        store.save(1, {"w": 1.0})
        store.save(1, {"v": 2.0}, {"again": True})
    found = load_newest(tmp_path)
    assert found is not None
    assert (found.arrays, found.extra) == ({"v": 2.0}, {"again": True})
    assert sorted(os.listdir(tmp_path)) == ["checkpoint", "model.ckpt-1.npz"]


@pytest.fixture
def blocked(tmp_path: Path) -> Path:
    """A directory that cannot be made, because there is a file."""
    (tmp_path / "m").touch()
    return tmp_path / "m"


def raised_by_save(store: CheckpointStore) -> None:
    store.save(2, {})


@pytest.mark.parametrize("raises", [CheckpointStore.wait, CheckpointStore.close, raised_by_save])
def test_an_error_is_raised_once_where_one_looks_next(blocked: Path, raises: Callable[[CheckpointStore], None]) -> None:
    store = CheckpointStore(blocked)
    store.save(1, {})
    with pytest.raises(CheckpointError, match=f"{blocked} could not be written: .*File exists.*intact") as caught:
        raises(store)
    assert isinstance(caught.value.__cause__, OSError)
    store.close()


def test_after_an_error_it_goes_on(blocked: Path) -> None:
    with CheckpointStore(blocked) as store:
        store.save(1, {})
        with pytest.raises(CheckpointError):
            store.wait()
        blocked.unlink()
        prefix = store.save(2, {})
    assert latest_checkpoint(blocked) == prefix


def test_the_first_error_wins(blocked: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ZeroDivisionError), CheckpointStore(blocked) as store:
        store.save(1, {})
        raise ZeroDivisionError
    assert f"{blocked} could not be written" in caplog.text
    with pytest.raises(CheckpointError), CheckpointStore(blocked) as store:
        store.save(1, {})


def test_the_file_that_fails_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "model.ckpt-2.npz").mkdir()
    with CheckpointStore(tmp_path) as store:
        for step, name in ((1, ""), (2, "")):
            store.save(step, {})
            with pytest.raises(CheckpointError, match=f"{tmp_path}{name} could not be written"):
                store.wait()
        (tmp_path / "checkpoint").rmdir()
        store.save(2, {})
        with pytest.raises(CheckpointError, match=r"/model\.ckpt-2\.npz could not be written"):
            store.wait()
    assert sorted(os.listdir(tmp_path)) == ["model.ckpt-2.npz"]


def test_the_list_that_cannot_be_written(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path) as store:
        store.save(1, {})
        store.wait()
        (tmp_path / "checkpoint").unlink()
        (tmp_path / "checkpoint").mkdir()
        store.save(2, {})
        with pytest.raises(CheckpointError, match=f"{tmp_path}/checkpoint could not be written"):
            store.wait()
        (tmp_path / "checkpoint").rmdir()
        store.save(3, {})
    assert sorted(os.listdir(tmp_path)) == ["checkpoint", *(f"model.ckpt-{step}.npz" for step in (1, 2, 3))]


def test_a_directory_that_was_removed_is_made_again(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path / "a" / "b") as store:
        prefix = store.save(1, {})
        store.wait()
        (tmp_path / "a").rename(tmp_path / "away")
        store.save(2, {})
    assert not Path(f"{prefix}.npz").exists()
    assert latest_checkpoint(tmp_path / "a" / "b") == f"{tmp_path}/a/b/model.ckpt-2"


def test_closed_is_closed(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.close()
    store.close()
    store.wait()
    with pytest.raises(CheckpointError, match=r"is closed\. Make a new"):
        store.save(1, {})


def test_an_unused_store_leaves_no_trace(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path / "m"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_names(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path / "m", basename="cp-1") as store:
        prefix = store.save(np.int64(12), {})
        assert prefix == store.prefix_of(12) == f"{tmp_path}/m/cp-1-12"
    assert all_checkpoints(tmp_path / "m") == [prefix]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"basename": "a/b"}, "without '/'; got 'a/b'"),
        ({"basename": ""}, "without '/'; got ''"),
        ({"basename": None}, "got None"),
        ({"basename": ".hidden"}, "neither begins with"),
        ({"basename": "x.npz"}, "nor ends with"),
        ({"keep_max": -1}, "keep_max is an integer, at least 0; got -1"),
        ({"keep_max": 2.5}, "keep_max is an integer"),
        ({"keep_max": True}, "keep_max is an integer"),
        ({"keep_every_n_hours": -1}, "at least 0; got -1"),
        ({"keep_every_n_hours": float("nan")}, "at least 0; got nan"),
        ({"keep_every_n_hours": "1"}, "at least 0; got '1'"),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        CheckpointStore(tmp_path, **arguments)


@pytest.mark.parametrize("step", [-1, 1.0, "1", None, True])
def test_wrong_steps(tmp_path: Path, step: Any) -> None:
    with CheckpointStore(tmp_path) as store, pytest.raises(ArgumentError, match="step is an integer, at least 0"):
        store.save(step, {})


def test_what_was_saved_is_written_also_if_the_program_ends(tmp_path: Path) -> None:
    code = """
import sys, numpy
from lockstep.checkpoint import CheckpointStore
CheckpointStore(sys.argv[1]).save(1, {"w": numpy.ones(1_000_000)})
"""
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True, timeout=180)
    found = load_newest(tmp_path)
    assert found is not None
    assert found.arrays["w"].sum() == 1_000_000


def test_a_program_may_change_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    with CheckpointStore("m") as store:
        assert store.save(1, {}) == "m/model.ckpt-1"
        monkeypatch.chdir("other")
        gate.open.set()
    assert latest_checkpoint(tmp_path / "m") == f"{tmp_path}/m/model.ckpt-1"
