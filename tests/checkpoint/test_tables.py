"""Checkpoints with tables in files beside them: readers, damage, leftovers, and what is removed with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockstep import checkpoint
from lockstep.checkpoint import CheckpointStore
from lockstep.checkpoint import internal as files
from lockstep.errors import CheckpointError

ROWS = 10
FLOAT = np.dtype(np.float32)


def values(step: int) -> np.ndarray:
    """Returns a table: of rows 2, 3, 5 and 9 that a step has made, and zeros."""
    whole = np.zeros((ROWS, 2), np.float32)
    whole[[2, 3, 5, 9]] = step + np.arange(8).reshape(4, 2)
    return whole


def save(store: CheckpointStore, step: int) -> Path:
    """Saves a checkpoint with a table in two files; returns their directory."""
    directory = Path(files.new_directory(store.prefix_of(step)))
    directory.mkdir(parents=True)
    written: list[tuple[str, int]] = []
    for number, ids in enumerate(([2, 3], [5, 9])):
        path = directory / f"rows_{number}_of_2.npz"
        held = np.asarray(ids, np.int64)
        arrays: dict[str, Any] = {
            files.ids_key("t"): held,
            files.values_key("t"): values(step)[held],
            files.values_key("t/slot"): values(step)[held] + 0.5,
        }
        files.write(str(path), step, arrays, {})
        written.append((path.name, path.stat().st_size))
    table = files.TableLayout(files.ArrayLayout(FLOAT, (ROWS, 2)), ("t", "t/slot"), (FLOAT, FLOAT), (None, 0.5))
    record = files.TableRecord(directory.name, tuple(written), {"t": table})
    store.save(step, {"w": np.full(3, float(step))}, {files.TABLES: record.to_json()})
    store.wait()
    return directory


def test_readers_show_tables_among_the_variables(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path) as store:
        save(store, 4)
    assert checkpoint.list_variables(tmp_path) == [("t", [ROWS, 2]), ("t/slot", [ROWS, 2]), ("w", [3])]
    np.testing.assert_array_equal(checkpoint.load_variable(tmp_path, "t"), values(4))
    found = checkpoint.load_newest(tmp_path)
    assert found is not None
    assert found.tables is None
    np.testing.assert_array_equal(found.arrays["t"], values(4))
    np.testing.assert_array_equal(found.arrays["t/slot"], values(4) + 0.5)


def test_rows_are_read_without_the_others(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path) as store:
        save(store, 4)
    found = files.load_newest_by_rows(tmp_path)
    assert found is not None
    assert found.tables is not None
    assert set(found.arrays) == {"w"}
    ids = np.asarray([0, 2, 5, 6, 9])
    np.testing.assert_array_equal(found.tables.rows("t", ids), values(4)[ids])
    np.testing.assert_array_equal(found.tables.rows("t", np.empty(0, np.int64)), np.empty((0, 2)))
    # Also when somebody has removed the files.
    checkpoint.remove_checkpoint(found.prefix)
    assert list(tmp_path.glob("*.tables-*")) == []
    np.testing.assert_array_equal(found.tables.read("t"), values(4))


@pytest.mark.parametrize("harm", ["a file is missing", "a file is cut off", "a bit is another"])
def test_a_damaged_one_is_passed_over(tmp_path: Path, harm: str, caplog: pytest.LogCaptureFixture) -> None:
    with CheckpointStore(tmp_path) as store:
        save(store, 4)
        path = save(store, 5) / "rows_1_of_2.npz"
    data = bytearray(path.read_bytes())
    if harm == "a file is missing":
        path.unlink()
    elif harm == "a file is cut off":
        path.write_bytes(data[:-5])
    else:
        # In the ids' values: behind the header of the first member, which is the manifest.
        place = data.find(np.asarray([5, 9], np.int64).tobytes())
        data[place] ^= 1
        path.write_bytes(data)
    for load in (checkpoint.load_newest, files.load_newest_by_rows):
        found = load(tmp_path)
        assert found is not None
        assert found.step == 4
        assert path.name in caplog.text
    if harm != "a bit is another":
        assert checkpoint.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-4")
    with pytest.raises(CheckpointError, match=path.name):
        files.load_newest_by_rows(tmp_path, strict=True)


def test_files_go_with_their_checkpoint_and_leftovers_with_the_next(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path, keep_max=2) as store:
        kept = [save(store, step) for step in (1, 2, 3)][1:]
        assert sorted(tmp_path.glob("*.tables-*")) == sorted(kept)
        # Of a writer that was killed before the checkpoint's own file, and of one that has saved a step again.
        for name in ("model.ckpt-4.tables-0123abcd", "model.ckpt-3.tables-0123abcd"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "rows_0_of_1.npz").write_bytes(b"half")
        (tmp_path / "other-4.tables-0123abcd").mkdir()
        store.save(5, {"w": np.zeros(3)})
        store.wait()
        assert {path.name for path in tmp_path.glob("*.tables-*")} == {kept[-1].name, "other-4.tables-0123abcd"}
        assert checkpoint.load(store.prefix_of(3)).step == 3


def test_one_that_is_read_stays_with_its_files(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path, keep_max=1) as store:
        directory = save(store, 1)
        with checkpoint.pinned(store.prefix_of(1)):
            save(store, 2)
            assert directory.exists()
            np.testing.assert_array_equal(checkpoint.load_variable(store.prefix_of(1), "t"), values(1))
        save(store, 3)
        assert not directory.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"directory": "../model.ckpt-4.tables-00000000"},
        {"files": [["../../etc/passwd", 3]]},
        {"version": 9},
        {"tables": {"t": {"shape": [], "arrays": [["t", "<f4", None]]}}},
        {"tables": 3},
    ],
)
def test_a_record_that_leads_elsewhere_is_refused(change: dict[str, Any]) -> None:
    record = {
        "version": 1,
        "directory": "model.ckpt-4.tables-00000000",
        "files": [["rows_0_of_1.npz", 3]],
        "tables": {},
    }
    assert files.TableRecord.from_json(json.loads(json.dumps(record))).tables == {}
    with pytest.raises(ValueError, match=r"."):
        files.TableRecord.from_json({**record, **change})
