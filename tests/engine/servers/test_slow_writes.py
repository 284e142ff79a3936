"""A server that writes for longer than a silence may last is awaited, and one that is dead or stuck is named."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockstep._engine.runtime import authentication
from lockstep._engine.runtime.limits import Limits
from lockstep._engine.servers import cuts, table_files
from lockstep._engine.servers.connection import Caller
from lockstep._engine.servers.job_cluster import agreed_of
from lockstep._engine.servers.requests import Pull
from lockstep._engine.servers.server import SocketServerLink
from lockstep._engine.servers.server_group import ServerGroup
from lockstep.cluster_resolver import ClusterSpec
from lockstep.errors import CheckpointError, MissingTaskError
from tests.engine.runtime.jobs import eventually
from tests.engine.servers import programs
from tests.engine.servers.slow_server import GO_ON, NOTES
from tests.support.cluster import ROOT, environment
from tests.support.ports import free_ports

pytestmark = pytest.mark.cluster
_LIMITS = Limits(join=3.0, silence=2.0)
_TABLE = {"table/embeddings": ["table/embeddings"]}


class _SlowServer:
    """A server process, and ways to it."""

    def __init__(self, folder: Path, writes: int, seconds: float | None, progress: float = 60.0) -> None:
        self.folder = folder
        self._links: list[SocketServerLink] = []
        worker, self.address = (f"127.0.0.1:{port}" for port in free_ports(2))
        self._agreed = agreed_of(ClusterSpec({"worker": [worker], "ps": [self.address]}))
        options: Mapping[str, Any] = {
            "address": self.address,
            "agreed": self._agreed,
            "folder": str(folder),
            "writes": writes,
            "seconds": seconds,
            "silence": _LIMITS.silence,
            "progress": progress,
        }
        command = [sys.executable, "-m", "tests.engine.servers.slow_server", json.dumps(options)]
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment())
        # The time that it takes to start, and to compile, is no matter here.
        self.group(Limits(join=200.0)).open(programs.spec_of(1), 0, programs.initial_values())

    def group(self, limits: Limits = _LIMITS) -> ServerGroup:
        """Returns the servers of a job, of which this is the only one; each with connections of its own."""
        caller = Caller("worker 0", "", secrets.token_hex(8), self._agreed, authentication.secret_from_environment())

        def check(server: str, seconds: float, generation: int) -> None:
            del generation
            assert seconds < _LIMITS.silence, f"{server} counts as one that is out of reach"

        self._links.append(link := SocketServerLink(caller, "ps 0", self.address, 0, limits))
        group = ServerGroup([link], check)
        group.bind(programs.spec_of(1))
        return group

    def end(self) -> None:
        """Kills the process, and closes the ways to it."""
        self.process.kill()
        self.process.wait()
        for link in self._links:
            link.close()

    def notes(self) -> list[str]:
        """Returns what was written: "begins" and "ends" of files."""
        path = self.folder / NOTES
        return path.read_text().split() if path.exists() else []

    def await_notes(self, *expected: str) -> None:
        """Waits until so much is written."""
        eventually(lambda: self.notes() == list(expected), lambda: f"{self.notes()} becomes {expected}", 60.0)


@pytest.fixture
def servers() -> Generator[list[_SlowServer]]:
    """Takes servers, and ends them."""
    started: list[_SlowServer] = []
    yield started
    for server in started:
        server.end()


@pytest.mark.parametrize("kind", ["cut", "tables"])
def test_a_long_write_is_awaited_and_made_once(servers: list[_SlowServer], kind: str, tmp_path: Path) -> None:
    servers.append(server := _SlowServer(tmp_path, 6, 1.0))
    directory = str(tmp_path / "saved")

    def pull() -> Any:
        server.await_notes("begins")
        return server.group().exchange(None, Pull(0), 60.0)

    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        pulled = pool.submit(pull)
        if kind == "cut":
            cuts.write(server.group(), directory, 0, None)
        else:
            table_files.save(server.group(), directory, 0, _TABLE)
        assert time.monotonic() - began > _LIMITS.join + _LIMITS.silence
        # Who asks for values meanwhile waits likewise.
        values = pulled.result(60.0).dense
    np.testing.assert_array_equal(values["dense/kernel"], programs.initial_values()["dense/kernel"])
    assert server.notes() == ["begins", "ends"]


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_that_dies_while_it_writes_is_named(
    servers: list[_SlowServer], sign: signal.Signals, tmp_path: Path
) -> None:
    servers.append(server := _SlowServer(tmp_path, 1000, 0.1))
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(cuts.write, server.group(), str(tmp_path / "saved"), 0, None)
        server.await_notes("begins")
        server.process.send_signal(sign)
        began = time.monotonic()
        with pytest.raises(MissingTaskError, match="ps 0"):
            written.result(60.0)
    # Its silence, and the time that it has to come back; the rest is that of a busy machine.
    assert time.monotonic() - began < _LIMITS.silence + _LIMITS.join + 20.0


def test_a_write_that_stands_still_is_an_error_and_is_not_begun_again(
    servers: list[_SlowServer], tmp_path: Path
) -> None:
    servers.append(server := _SlowServer(tmp_path, 1, None, progress=2.0))
    directory = str(tmp_path / "saved")
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"ps 0 cannot.*LOCKSTEP_PROGRESS_TIMEOUT"):
            cuts.write(server.group(), directory, 0, None)
    assert server.notes() == ["begins"]
    (tmp_path / GO_ON).touch()
    server.await_notes("begins", "ends")
    cuts.write(server.group(), directory, 0, None)
    assert server.notes() == ["begins", "ends"] * 2
