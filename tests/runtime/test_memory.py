"""Memory that a step has used is kept for the next one, if it is to be."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.cluster import environment

pytestmark = pytest.mark.timed

# Frees 64 blocks of 4 MB, and tells how much of that the system got back.
PROGRAM = """
import sys
import numpy as np
from lockstep._runtime import memory
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 >> 20
memory.keep()
before = resident()
blocks = [np.ones(1 << 19) for _ in range(64)]
most = resident()
del blocks
print(most - before, resident() - before)
"""


def held(**env: str) -> tuple[int, int]:
    """Megabytes while in use, and after."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment(**env), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    used, after = map(int, done.stdout.split())
    return used, after


def test_memory_is_kept() -> None:
    used, after = held()
    assert used >= 250
    assert after >= 250


@pytest.mark.parametrize("env", [{"LOCKSTEP_KEEP_MEMORY": "0"}, {"MALLOC_ARENA_MAX": "4"}], ids=["off", "set up"])
def test_memory_goes_back_if_asked_for(env: dict[str, str]) -> None:
    used, after = held(**env)
    assert used >= 250
    assert after <= 50


def test_a_wrong_setting_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment(LOCKSTEP_KEEP_MEMORY="yes"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "LOCKSTEP_KEEP_MEMORY must be 1" in done.stderr
