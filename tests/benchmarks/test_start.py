from __future__ import annotations

import sys

import pytest

from benchmarks.harness.processes import Failed
from benchmarks.programs.start import seconds_to_first_step

_BAR = r"""
import sys, time
assert sys.stdout.isatty()
print("Epoch 1/3")
time.sleep(0.3)  # A step.
sys.stdout.write("\r\x1b[1m 1/938\x1b[0m \x1b[37m----\x1b[0m 5:12 333ms/step")
sys.stdout.flush()
"""


def _seconds(program: str, tasks: int = 1, complete: bool = False) -> float:
    return seconds_to_first_step([sys.executable, "-c", program], [{}] * tasks, ".", complete, 240)


def test_the_first_step_is_what_the_bar_shows_first() -> None:
    assert _seconds(_BAR) >= 0.3


def test_a_program_may_run_to_its_end_on_several_tasks() -> None:
    assert _seconds(_BAR.replace("assert sys.stdout.isatty()", ""), tasks=2, complete=True) >= 0.3


def test_a_program_without_steps_says_what_it_said() -> None:
    with pytest.raises(Failed, match=r"no step was shown: .*nothing to do"):
        _seconds("print('Epoch 1/3 nothing to do')")


def test_a_program_that_fails_after_its_first_step_is_told() -> None:
    with pytest.raises(Failed, match="ended with 3"):
        _seconds(_BAR + "\nsys.exit(3)", complete=True)
