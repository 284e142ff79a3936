"""Files that TensorBoard reads."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tensorboardX.proto.plugin_text_pb2 import TextPluginData

from lockstep.summary import EventFile, SessionLog, read_events, scalars
from lockstep.summary import _event_file as event_file


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("events.out.tfevents.*"))


def test_a_file_starts_with_its_version(tmp_path: Path) -> None:
    file = EventFile(tmp_path / "deep" / "down")
    assert not (tmp_path / "deep").exists()
    file.scalar("loss", np.float32(0.5), 3)
    file.close()
    first, second = read_events(tmp_path / "deep" / "down")
    assert first.file_version == "brain.Event:2"
    assert (second.step, second.summary.value[0].tag, second.summary.value[0].simple_value) == (3, "loss", 0.5)
    assert abs(second.wall_time - first.wall_time) < 60


def test_readers_see_what_was_flushed(tmp_path: Path) -> None:
    file = EventFile(tmp_path)
    file.scalar("loss", 1, 1)
    assert scalars(tmp_path) == {}
    file.flush()
    assert scalars(tmp_path) == {1: {"loss": 1.0}}
    file.close()


def test_after_some_time_readers_see_it_anyway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=50.0)
    monkeypatch.setattr(event_file, "time", SimpleNamespace(monotonic=lambda: clock.now, time=lambda: 1e9))
    file = EventFile(tmp_path, flush_secs=120)
    seen = []
    for now in (50, 169, 170, 171):
        clock.now = now
        file.scalar("loss", 1, now)
        seen.append(len(scalars(tmp_path)))
    file.close()
    assert seen == [0, 0, 3, 3]


def test_several_files_of_a_process(tmp_path: Path) -> None:
    one, other = EventFile(tmp_path), EventFile(tmp_path, ".eval")
    for file, step in ((one, 1), (other, 2), (one, 3)):
        file.scalar("loss", step, step)
    one.close()
    one.scalar("loss", 4, 4)
    one.close()
    other.close()
    assert len(files(tmp_path)) == 3
    assert sum(file.name.endswith(".eval") for file in files(tmp_path)) == 1
    assert scalars(tmp_path) == {step: {"loss": float(step)} for step in range(1, 5)}


def test_threads_share_a_file(tmp_path: Path) -> None:
    file = EventFile(tmp_path)

    def write(number: int) -> None:
        for step in range(200):
            file.scalar(f"from {number}", step, step)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    file.close()
    assert len(files(tmp_path)) == 1
    assert scalars(tmp_path)[199] == {f"from {number}": 199.0 for number in range(4)}
    assert sum(len(event.summary.value) for event in read_events(tmp_path)) == 800


@pytest.mark.slow
def test_what_is_left_is_written_when_the_process_ends(tmp_path: Path) -> None:
    code = "import sys; from lockstep import summary as s; from lockstep.estimator.summary import FileWriterCache;"
    code += "FileWriterCache.get(sys.argv[1]).add_summary(b'', 1);"
    code += "s.EventFile(sys.argv[1]).scalar('dropped', 1, 1); f = s.EventFile(sys.argv[1]); f.scalar('loss', 2, 7)"
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True, timeout=240)
    assert scalars(tmp_path) == {1: {"dropped": 1.0}, 7: {"loss": 2.0}}


def test_what_is_left_is_written_when_the_object_ends(tmp_path: Path) -> None:
    gc.collect()  # What other tests have left may warn, too.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        EventFile(tmp_path).scalar("loss", 2, 7)
        gc.collect()
    assert scalars(tmp_path) == {7: {"loss": 2.0}}
    assert not caught


def test_distributions_leave_out_what_is_not_finite(tmp_path: Path) -> None:
    file = EventFile(tmp_path)
    file.histogram("weights", np.array([1.0, 2.0, np.nan, np.inf]), 1)
    file.histogram("lost", np.array([np.nan]), 1)
    file.close()
    values = [value for event in read_events(tmp_path) for value in event.summary.value]
    assert [(value.tag, value.histo.num, value.histo.max) for value in values] == [("weights", 2.0, 2.0)]


def test_any_event(tmp_path: Path) -> None:
    from tensorboardX.proto.event_pb2 import Event

    file = EventFile(tmp_path)
    file.add_event(Event(step=5, session_log=SessionLog(status=SessionLog.START)))
    file.close()
    assert [event.session_log.status for event in read_events(tmp_path)][1:] == [SessionLog.START]


def plugin_data(directory: Path) -> Any:
    return list(read_events(directory))[-1].summary.value[0].metadata.plugin_data


def test_texts_are_what_the_text_tab_parses(tmp_path: Path) -> None:
    # TensorBoard answers requests for the texts of all runs with an error if one of them cannot be parsed.
    with contextlib.closing(EventFile(tmp_path)) as file:
        file.text_of_plugin("checkpoint_path", "text", "model.ckpt-3", 3)
    assert plugin_data(tmp_path).plugin_name == "text"
    assert TextPluginData.FromString(plugin_data(tmp_path).content).version == 0


def test_a_configuration_is_what_the_graph_tab_looks_for(tmp_path: Path) -> None:
    with contextlib.closing(EventFile(tmp_path)) as file:
        file.text_of_plugin("keras", "graph_keras_model", "{}", 0)
    assert (plugin_data(tmp_path).plugin_name, plugin_data(tmp_path).content) == ("graph_keras_model", b"1")


# Files of more than 3 kB cannot be written; Python turns the signal into an error.
FULL = """
import logging, resource, sys
logging.basicConfig(format="%(message)s", stream=sys.stdout)
resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, 3_000))
import numpy
from lockstep.summary import EventFile
file = EventFile(sys.argv[1])
for step in range(200):
    file.scalar("loss", step, step)
    if step % 10 == 0:
        file.flush()
file.scalar("kept in memory until the end", 1, 1)
end = EventFile(sys.argv[1])
for step in range(100):
    end.scalar("loss", step, step)
print("trained")
"""


@pytest.mark.slow
def test_a_disk_that_is_full_ends_no_training(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path], check=True, timeout=240, capture_output=True, text=True
    )
    first, trained, last = done.stdout.splitlines()
    assert first.startswith(f"{tmp_path}/events.out.tfevents.")
    assert "could not be written: [Errno 27] File too large. Training goes on without it. Free space" in first
    assert trained == "trained"
    # What the other file still held when the process ended.
    assert last.startswith(f"{tmp_path}/events.out.tfevents.")
    assert done.stderr == ""


def test_a_directory_that_cannot_be_made_ends_no_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "logs").write_text("a file")
    file = EventFile(tmp_path / "logs")
    for step in range(3):
        file.scalar("loss", step, step)
    file.close()
    [warning] = caplog.messages
    assert f"{tmp_path}/logs/events.out.tfevents." in warning
