"""Cuts: training goes on from them to the bit, on any number of servers; a file is whole or absent."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import keras
import numpy as np
import pytest

from lockstep._engine.servers.layout import Layout, Variable
from lockstep._engine.servers.requests import JobSpec
from lockstep._engine.servers.rules import rule_of
from lockstep._engine.servers.server_state import ServerState
from lockstep._types import JSON
from lockstep.errors import CheckpointError
from tests.engine.servers.rows_oracle import BIAS, KERNEL, TABLE, Servers
from tests.support.exhaustive import always

PARTITIONS = {KERNEL: [2, 2, 2]}


def cut(servers: Servers, directory: Path, step: int) -> JSON:
    infos = [state.cut(str(directory), step).to_json() for state in servers.states]
    return {"layout": servers.layout.to_json(), "servers": infos, "step": step}


def restore(servers: Servers, directory: Path, manifest: JSON) -> None:
    for state in servers.states:
        state.restore(str(directory), manifest, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", always(["Adam", "AdamW", "Nadam", "Ftrl"], {"Nadam", "Ftrl"}.__contains__))
@pytest.mark.parametrize("count", [1, 2, 3])
def test_training_goes_on_to_the_bit_on_any_number_of_servers(tmp_path: Path, name: str, count: int) -> None:
    make = getattr(keras.optimizers, name)
    servers = Servers(make(0.01), 2, partitions=PARTITIONS)
    servers.train(30)
    manifest = cut(servers, tmp_path, 30)
    servers.train(200, first=30)
    others = Servers(make(0.01), count, partitions=PARTITIONS)
    restore(others, tmp_path, manifest)
    others.train(200, first=30)
    assert others.bits() == servers.bits()
    assert all(state.report()["version"] == 230 for state in others.states)


def test_nothing_that_was_not_touched_is_written(tmp_path: Path) -> None:
    table = Variable(TABLE, (50_000_000, 16), "float32", "rows")
    layout = Layout.make([table], 1)
    state = ServerState(0)
    state.open(JobSpec(layout, rule_of(keras.optimizers.Adagrad(), [table]), "async", 1, {}), 0, {})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    state.assign(TABLE, 49_999_000, 49_999_100, np.ones((100, 16), np.float32))
    info = state.cut(str(tmp_path), 0)
    assert info.bytes < 100_000
    assert state.report()["rows"] == {TABLE: 100}
    # The table would be 3.2 GB, with its slot 6.4.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


@pytest.mark.slow
def test_a_full_disk_leaves_the_former_cut_whole(tmp_path: Path) -> None:
    servers = Servers(keras.optimizers.Adam(0.01))
    servers.train(3)
    manifest = cut(servers, tmp_path, 3)
    at_cut = servers.bits()
    servers.train(3, first=3)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        for step in (3, 6):
            with pytest.raises(CheckpointError, match=f"step_{step}_server_0"):
                servers.states[0].cut(str(tmp_path), step)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert [path.name for path in tmp_path.iterdir()] == [manifest["servers"][0]["file"]]
    restore(servers, tmp_path, manifest)
    assert servers.bits() == at_cut


@pytest.mark.slow
def test_a_damaged_or_foreign_cut_is_refused(tmp_path: Path) -> None:
    servers = Servers(keras.optimizers.Adam(0.01), 2)
    servers.train(2)
    manifest = cut(servers, tmp_path, 2)
    file = tmp_path / manifest["servers"][1]["file"]
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match=file.name):
        restore(servers, tmp_path, manifest)
    file.write_bytes(whole)
    restore(servers, tmp_path, manifest)
    with pytest.raises(CheckpointError, match="each of its 2 servers"):
        restore(servers, tmp_path, {**manifest, "servers": manifest["servers"][:1]})
    other = Layout.make([Variable(BIAS, (3,), "float32", "dense")], 2).to_json()
    with pytest.raises(CheckpointError, match=KERNEL):
        restore(servers, tmp_path, {**manifest, "layout": other})
