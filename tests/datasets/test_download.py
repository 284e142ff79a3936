"""Downloads from a server of the test: verified, once per machine, and never for long."""

from __future__ import annotations

import hashlib
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from lockstep.datasets import _download, _mnist, builder, disable_progress_bar, enable_progress_bar, load_mnist
from lockstep.datasets._sets import housing
from tests.datasets import files
from tests.datasets.digits import npz

CONTENT = npz()


class Server(ThreadingHTTPServer):
    """Serves `body` to whoever asks, pausing before each piece, and counts the downloads."""

    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.body = CONTENT
        self.promised = len(CONTENT)
        self.status = 200
        self.pause: Callable[[], object] = lambda: None
        self.downloads = 0

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing: clients that have waited long enough hang up."""


class Handler(BaseHTTPRequestHandler):
    """Answers HEAD with headers, and GET with the body in small pieces."""

    server: Server

    def do_HEAD(self) -> None:
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(self.server.promised))
        self.end_headers()

    def do_GET(self) -> None:
        self.server.downloads += 1
        self.do_HEAD()
        for start in range(0, len(self.server.body), 4096):
            self.server.pause()
            self.wfile.write(self.server.body[start : start + 4096])

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        offer(monkeypatch, server.server_port)
        yield server
        server.shutdown()
        thread.join()


def offer(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """Lets MNIST be published at a port of this machine."""
    url = f"http://127.0.0.1:{port}/mnist.npz"
    file = _download.PublishedFile("mnist.npz", url, hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(_mnist, "_PUBLISHED", file)
    monkeypatch.delenv("LOCKSTEP_OFFLINE")


def test_what_is_downloaded_is_cached(
    server: Server, keras_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = keras_home / "datasets" / "mnist.npz"
    assert load_mnist().source == f"MNIST from {path}"
    assert path.read_bytes() == CONTENT
    assert capsys.readouterr().err == f"lockstep: downloading {_mnist._PUBLISHED.url} to {path}\n"
    monkeypatch.setenv("LOCKSTEP_OFFLINE", "1")
    assert load_mnist().source == f"MNIST from {path}"
    assert server.downloads == 1


def test_a_damaged_file_in_the_cache_is_replaced(server: Server, keras_home: Path) -> None:
    path = keras_home / "datasets" / "mnist.npz"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half of it")
    assert load_mnist().source == f"MNIST from {path}"
    assert path.read_bytes() == CONTENT


def test_processes_that_start_together_download_once(server: Server, keras_home: Path) -> None:
    sources: list[str] = []
    threads = [threading.Thread(target=lambda: sources.append(load_mnist().source)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sources == [f"MNIST from {keras_home / 'datasets' / 'mnist.npz'}"] * 4
    assert server.downloads == 1
    assert {path.name for path in (keras_home / "datasets").iterdir()} == {"mnist.npz", "mnist.npz.lock"}


def test_a_cache_that_cannot_be_written_is_no_error(server: Server, keras_home: Path) -> None:
    keras_home.write_text("no directory")
    assert load_mnist().source.startswith("MNIST from")


@pytest.mark.parametrize("body", [b"", CONTENT[:-1] + b"x"])
def test_wrong_content_is_not_used(server: Server, keras_home: Path, body: bytes) -> None:
    server.body = body
    assert load_mnist().source.startswith("a sample of MNIST")
    assert not (keras_home / "datasets" / "mnist.npz").exists()


def test_an_error_of_the_server_is_told(server: Server) -> None:
    server.status = 503
    assert "cannot be reached: Service Unavailable)" in load_mnist().source


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        offer(monkeypatch, closed.getsockname()[1])
        assert "cannot be reached: [Errno" in load_mnist().source


def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_download, "_ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        offer(monkeypatch, silent.getsockname()[1])
        started = time.monotonic()
        assert "cannot be reached: " in load_mnist().source
        assert time.monotonic() - started < 5


@pytest.mark.slow
def test_a_slow_download_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_download, "TOTAL_SECONDS", 0.2)
    server.pause = lambda: time.sleep(0.15)
    assert "failed: not complete after 0.2 seconds" in load_mnist().source


def test_a_large_file_may_take_longer(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_download, "TOTAL_SECONDS", 0.05)
    server.pause = lambda: threading.Event().wait(0.06)
    assert _download.download(_mnist._PUBLISHED.url, patience=1000) == CONTENT


def test_progress_is_shown_in_a_terminal(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = _mnist._PUBLISHED.url
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    _download.download(url)
    shown = capsys.readouterr().err
    assert shown.startswith(f"\r\x1b[K{url}: 0.0 of 0.0 MB")
    assert shown.endswith("\r\x1b[K")
    disable_progress_bar()
    try:
        _download.download(url)
        assert not capsys.readouterr().err
    finally:
        enable_progress_bar()
    _download.download(url)
    assert capsys.readouterr().err.startswith(f"\r\x1b[K{url}: 0.0 of 0.0 MB")


def test_other_data_sets_are_downloaded_too(server: Server, monkeypatch: pytest.MonkeyPatch, keras_home: Path) -> None:
    server.body = files.npz(x=np.ones((10, 8)), y=np.ones(10))
    server.promised = len(server.body)
    url = f"http://127.0.0.1:{server.server_port}/california_housing.npz"
    file = files.published(housing.PUBLISHED["california_housing"], server.body, url)
    monkeypatch.setitem(housing.PUBLISHED, "california_housing", file)
    for _ in range(2):
        data_set = builder("california_housing")
        data_set.download_and_prepare()
        assert data_set.info.source == f"california_housing from {keras_home / 'datasets' / 'california_housing.npz'}"
        assert data_set.info.splits.total_num_examples == 10
    assert server.downloads == 1


def test_waiting_for_another_process_ends(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_download, "TOTAL_SECONDS", 0.2)
    path = tmp_path / "keras" / "datasets" / "mnist.npz"
    with _download.download_lock(path, 1):
        assert f"another process holds {path}.lock" in load_mnist().source
    assert server.downloads == 0
