"""Turns: one compiles, the others wait, and nobody waits for the dead."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lockstep._runtime.compiled_programs import CompiledPrograms
from lockstep._runtime.turns import Turns

pytestmark = pytest.mark.timed

_HOLDER = """
import sys
from pathlib import Path
from lockstep._runtime.turns import Turns
Turns().take(Path(sys.argv[1]))
print("has it", flush=True)
sys.stdin.read()
"""


def test_a_turn_that_is_free_is_taken_at_once_and_leaves_no_file(tmp_path: Path) -> None:
    turns = Turns()
    assert not turns.take(tmp_path / "turn")
    assert (tmp_path / "turn").exists()
    turns.end()
    turns.end()
    assert not list(tmp_path.iterdir())


def test_the_next_turn_of_a_thread_ends_the_last(tmp_path: Path) -> None:
    turns = Turns()
    turns.take(tmp_path / "a")
    turns.take(tmp_path / "b")
    assert not (tmp_path / "a").exists()
    assert not Turns().take(tmp_path / "a")


def test_a_wait_has_an_end(tmp_path: Path) -> None:
    first = Turns()
    first.take(tmp_path / "turn")
    start = time.monotonic()
    assert Turns().take(tmp_path / "turn", seconds=0.2)
    assert 0.2 <= time.monotonic() - start < 30
    first.end()


def test_where_no_file_can_be_made_there_are_no_turns(tmp_path: Path) -> None:
    turns = Turns()
    assert not turns.take(tmp_path / "missing" / "turn")
    turns.end()


def test_a_process_that_dies_gives_its_turn_back(tmp_path: Path) -> None:
    path = tmp_path / "turn"
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdin is not None
    assert holder.stdout.readline() == "has it\n"
    waited: list[bool] = []
    waiter = threading.Thread(target=lambda: waited.append(Turns().take(path, seconds=60)))
    waiter.start()
    waiter.join(0.2)
    assert waiter.is_alive()
    holder.kill()
    waiter.join(30)
    assert waited == [True]
    holder.stdin.close()
    holder.stdout.close()
    holder.wait(30)


def test_who_waits_for_a_program_gets_the_one_that_the_other_compiled(tmp_path: Path) -> None:
    first, second = (CompiledPrograms(tmp_path, "a machine", 1 << 20) for _ in range(2))
    assert first.get("key") is None
    found: list[bytes | None] = []
    waiter = threading.Thread(target=lambda: found.append(second.get("key")))
    waiter.start()
    waiter.join(0.1)
    assert waiter.is_alive()
    first.put("key", b"program")
    first.done()
    waiter.join(30)
    assert found == [b"program"]


def test_who_waits_in_vain_compiles(tmp_path: Path) -> None:
    first, second = (CompiledPrograms(tmp_path, "a machine", 1 << 20) for _ in range(2))
    assert first.get("key") is None
    first.done()  # It could not be compiled, or not be kept.
    assert second.get("key") is None
    assert first.get("key", in_turn=False) is None
    second.done()
