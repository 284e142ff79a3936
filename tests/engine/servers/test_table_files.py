"""Rows of tables in a checkpoint's files: any servers read them, in pieces, and so does who has no server."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np
import pytest

from lockstep._engine.servers.initial_rows import initializer_of
from lockstep._engine.servers.layout import Layout, Variable
from lockstep._engine.servers.requests import JobSpec
from lockstep._engine.servers.rules import rule_of
from lockstep._engine.servers.server_state import ServerState
from lockstep._types import Array, Optimizer
from lockstep.checkpoint.internal import ArrayLayout, TableLayout, TableRecord, Tables
from lockstep.errors import CheckpointError
from tests.engine.servers.rows_oracle import ROWS, TABLE, WIDTH, Servers

DIRECTORY = "m-3.tables-00000000"


def _keys(states: Sequence[ServerState]) -> list[str]:
    state = states[0]
    assert state._variables is not None
    return [TABLE, *(f"{TABLE}/{slot.name}" for slot in state._variables.spec.rule.program(TABLE).slots)]


def save(states: Sequence[ServerState], folder: Path, shape: tuple[int, int] = (ROWS, WIDTH)) -> Tables:
    """Returns the tables of a checkpoint of these servers."""
    keys = _keys(states)
    infos = [state.save_tables(str(folder / DIRECTORY), 3, {TABLE: keys}) for state in states]
    assert states[0]._variables is not None
    initials = (None, *(slot.initial for slot in states[0]._variables.spec.rule.program(TABLE).slots))
    float32 = np.dtype(np.float32)
    layout = TableLayout(ArrayLayout(float32, shape), tuple(keys), (float32,) * len(keys), initials)
    record = TableRecord(DIRECTORY, tuple((info.file, info.bytes) for info in infos), {TABLE: layout})
    tables = Tables(str(folder / "m-3"), TableRecord.from_json(record.to_json()))
    tables.verify()
    return tables


def load(states: Sequence[ServerState], tables: Tables) -> None:
    for state in states:
        state.load_tables(tables.directory, [name for name, _ in tables.record.files], {TABLE: _keys(states)})


def read(servers: Servers, key: str) -> Array:
    parts = [servers.states[s.server].read(key, s.start, s.stop) for s in servers.layout.shards_of(TABLE)]
    return np.concatenate(parts)


def fresh(optimizer: Optimizer, count: int) -> Servers:
    servers = Servers(optimizer, count)
    for state in servers.states:
        state.open(servers.spec, 0, {}, is_new=True)
    return servers


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Adam", "AdamW", "Ftrl", "SGD"])
def test_any_servers_go_on_with_the_rows_of_others(tmp_path: Path, name: str) -> None:
    make = getattr(keras.optimizers, name)
    servers = Servers(make(0.01), 2)
    servers.train(30)
    tables = save(servers.states, tmp_path)
    for key in _keys(servers.states):
        np.testing.assert_array_equal(tables.read(key), read(servers, key), err_msg=key)
        ids = np.asarray([0, 1, 7, ROWS - 1])
        np.testing.assert_array_equal(tables.rows(key, ids), read(servers, key)[ids])
    for count in (1, 2, 3):
        others = fresh(make(0.01), count)
        load(others.states, tables)
        # A request that was sent twice, as the connection broke before the answer.
        load(others.states, tables)
        for key in _keys(servers.states):
            np.testing.assert_array_equal(read(others, key), read(servers, key), err_msg=f"{count}: {key}")


def _large(rows: int, width: int, optimizer: Optimizer) -> ServerState:
    table = Variable(TABLE, (rows, width), "float32", "rows")
    code = initializer_of(keras.initializers.RandomUniform(seed=4), (rows, width), "float32")
    state = ServerState(0)
    state.open(JobSpec(Layout.make([table], 1), rule_of(optimizer, [table]), "async", 1, {TABLE: code}), 0, {})
    return state


@pytest.mark.slow
def test_rows_that_nobody_has_touched_are_made_as_servers_make_them(tmp_path: Path) -> None:
    state = _large(50_000_000, 16, keras.optimizers.Adagrad(0.1, initial_accumulator_value=0.25))
    state.assign(TABLE, 49_000_000, 49_000_100, np.ones((100, 16), np.float32))
    tables = save([state], tmp_path, (50_000_000, 16))
    assert sum(size for _, size in tables.record.files) < 100_000
    ids = np.asarray([3, 48_999_999, 49_000_000, 49_000_099, 49_999_999])
    for key in _keys([state]):
        expected = np.concatenate([state.read(key, i, i + 1) for i in ids])
        np.testing.assert_array_equal(tables.rows(key, ids), expected, err_msg=key)


@pytest.mark.slow
def test_an_optimizer_that_moves_all_rows_has_all_of_them_written(tmp_path: Path) -> None:
    servers = Servers(keras.optimizers.AdamW(0.01, weight_decay=0.1), 2)
    for state in servers.states:
        state.open(servers.spec, 0, {}, is_new=True)
        shard = next(s for s in servers.layout.shards_of(TABLE) if s.server == state.server)
        state.assign(TABLE, shard.start, shard.start + 3, np.ones((3, WIDTH), np.float32))
    servers.train(5)
    tables = save(servers.states, tmp_path)
    for key in _keys(servers.states):
        np.testing.assert_array_equal(tables.read(key), read(servers, key), err_msg=key)


@pytest.mark.slow
def test_no_more_than_a_few_pieces_are_in_memory(tmp_path: Path) -> None:
    rows, width = 300_000, 64
    state = _large(rows, width, keras.optimizers.Adam(0.1))
    for start in range(0, rows, 10_000):
        state.assign(TABLE, start, start + 10_000, np.full((10_000, width), start, np.float32))
    other = _large(rows, width, keras.optimizers.Adam(0.1))
    # Each of value and slots takes 77 MB. Servers' own memory comes from the system, and is not counted.
    tracemalloc.start()
    try:
        tables = save([state], tmp_path, (rows, width))
        load([other], tables)
        tables.rows(TABLE, np.arange(0, rows, 100))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40e6, peak
    np.testing.assert_array_equal(other.read(TABLE, 0, rows), state.read(TABLE, 0, rows))


@pytest.mark.slow
def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    servers = Servers(keras.optimizers.Adam(0.01), 2)
    servers.train(5)
    tables = save(servers.states, tmp_path)
    path = Path(tables.directory) / tables.record.files[1][0]
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(whole)
    with pytest.raises(CheckpointError, match=path.name):
        Tables(str(tmp_path / "m-3"), tables.record).verify()
    with pytest.raises(CheckpointError, match=path.name):
        load(fresh(keras.optimizers.Adam(0.01), 1).states, tables)
    path.write_bytes(whole[:-10])
    with pytest.raises(CheckpointError, match="bytes instead of"):
        Tables(str(tmp_path / "m-3"), tables.record)
    path.unlink()
    with pytest.raises(CheckpointError, match="not there"):
        Tables(str(tmp_path / "m-3"), tables.record)
