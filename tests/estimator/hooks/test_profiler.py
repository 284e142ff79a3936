"""Profiles of steps, where TensorBoard looks for them."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from lockstep.errors import ArgumentError
from lockstep.estimator._hooks import ProfilerHook, SessionRunContext, next_call
from tests.estimator.hooks.conftest import Clock
from tests.estimator.hooks.fakes import FakeSession, run_each, run_paced, started


def profiles(directory: Path) -> dict[str, str]:
    """Returns, for each run that TensorBoard's plugin shows, the names of what happened in it."""
    return {file.parent.name: _happened(file) for file in directory.glob("plugins/profile/*/*.xplane.pb")}


def _happened(file: Path) -> str:
    planes = jax.profiler.ProfileData.from_file(str(file)).planes
    return " ".join(event.name for plane in planes for line in plane.lines for event in line.events)


def work(step: int) -> None:
    """Runs a program on the device that is named after the step."""

    def program(x: jax.Array) -> jax.Array:
        return x @ x

    program.__name__ = f"program_of_{step}"
    jax.jit(program)(jnp.ones((8, 8)))


@pytest.mark.parametrize("arguments", [{}, {"save_steps": 1, "save_secs": 1}, {"save_steps": 1, "show_memory": True}])
def test_when_and_what_must_be_clear(arguments: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"every_secs|show_dataflow=True, show_memory=True"):
        ProfilerHook(output_dir=tmp_path, **arguments)


@pytest.mark.slow
def test_one_step_every_n(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    run_each([ProfilerHook(save_steps=3, output_dir=tmp_path)], 7, after=work)
    found = profiles(tmp_path)
    assert set(found) == {"step_3", "step_6"}
    for step in (3, 6):
        assert set(re.findall(r"program_of_\d", found[f"step_{step}"])) == {f"program_of_{step}"}
    assert log.messages == [
        f"Saving timeline for {step} into '{tmp_path}/plugins/profile/step_{step}'." for step in (3, 6)
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["plugins"]


@pytest.mark.slow
def test_a_later_start_replaces_the_profile_of_a_step(tmp_path: Path) -> None:
    for _ in range(2):
        run_each([ProfilerHook(save_steps=2, output_dir=tmp_path)], 2, after=work)
    assert set(profiles(tmp_path)) == {"step_2"}


def test_every_n_secs(tmp_path: Path, clock: Clock) -> None:
    hook = ProfilerHook(save_secs=1.0, output_dir=tmp_path)
    run_each([hook], 6, FakeSession(10), after=lambda step: clock.tick(0.4))
    assert set(profiles(tmp_path)) == {"step_15"}


def test_a_step_that_does_not_come_leaves_nothing(tmp_path: Path) -> None:
    hook, session = ProfilerHook(save_steps=1, output_dir=tmp_path), FakeSession()
    run_each([hook], 1, session, ends=False)
    hook.before_run(SessionRunContext(None, session))
    hook.end(session)
    assert list(tmp_path.iterdir()) == []


def test_a_profiled_step_runs_by_itself(tmp_path: Path) -> None:
    hook = ProfilerHook(save_steps=50, output_dir=tmp_path)
    assert run_paced([hook], 110).called == [[1, 49, 50, 99, 100]]
    assert set(profiles(tmp_path)) == {"step_50", "step_100"}
    started([hook])
    assert next_call(hook, 0) == 1


def test_a_profile_that_cannot_be_written_ends_no_training(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    run_each([ProfilerHook(save_steps=2, output_dir=tmp_path / "file")], 5, after=work)
    warnings = [message for message in log.messages if "could not be written" in message]
    assert len(warnings) == 2
    assert warnings[0].startswith(f"{tmp_path}/file could not be written: ")
