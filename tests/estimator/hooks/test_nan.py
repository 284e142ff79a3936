"""Losses that are not numbers."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from lockstep.estimator._hooks import NanLossDuringTrainingError, NanTensorHook, SessionRunContext, StopAtStepHook
from tests.estimator.hooks.fakes import FakeSession, run_each, run_paced, started, step_once

NAN = np.float32("nan")


class Later:
    """A loss that the device has yet to compute; reading it waits.

    Attributes:
        is_read: Whether it has been read.
    """

    def __init__(self, value: float, is_done: bool = False) -> None:
        self._value = value
        self._is_done = is_done
        self.is_read = False

    def is_ready(self) -> bool:
        return self._is_done

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray:
        self.is_read = True
        return np.asarray(self._value)


def losses(values: dict[int, object], other: object = np.float32(1)) -> FakeSession:
    return FakeSession(values={"loss": lambda step: values.get(step, other)})


def test_it_fails(log: pytest.LogCaptureFixture) -> None:
    session = losses({3: NAN})
    with pytest.raises(NanLossDuringTrainingError, match=r"^NaN loss during training\.") as caught:
        run_each([NanTensorHook("loss")], 5, session)
    assert session.step == 3
    assert str(caught.value) == "NaN loss during training."
    assert "global step 3." in caught.value.__notes__[0]
    assert [(record.levelname, record.getMessage()) for record in log.records] == [
        ("ERROR", "Model diverged with loss = NaN.")
    ]


def test_or_it_stops(log: pytest.LogCaptureFixture) -> None:
    run = run_each([NanTensorHook("loss", fail_on_nan_loss=False)], 5, losses({3: NAN}))
    assert run.stopped_at == 3
    assert [(record.levelname, record.getMessage()) for record in log.records] == [
        ("WARNING", "Model diverged with loss = NaN.")
    ]


@pytest.mark.parametrize("value", [np.inf, -np.inf, 0.0, jnp.float32(2), np.array([1.0, 2.0])])
def test_other_losses_are_none_of_its_business(value: object) -> None:
    assert run_each([NanTensorHook("loss")], 5, losses({}, value)).stopped_at is None


def test_one_of_several_losses() -> None:
    with pytest.raises(NanLossDuringTrainingError):
        run_each([NanTensorHook("loss")], 5, losses({2: jnp.array([1.0, NAN])}))


def test_it_asks_for_the_loss_as_the_device_has_it() -> None:
    request = NanTensorHook("loss").before_run(SessionRunContext(None, FakeSession()))
    assert (request.fetches, request.raw) == ({"loss": "loss", "step": "global_step"}, True)


def test_losses_that_are_not_there_yet_are_not_waited_for() -> None:
    values = {step: Later(1.0) for step in range(1, 13)}
    hook, session = NanTensorHook("loss"), losses(values)
    run = started([hook], session)
    for _ in range(12):
        step_once(run, [hook], [0])
    assert [step for step, value in values.items() if value.is_read] == [1, 2, 3, 4]
    hook.settle()
    assert all(value.is_read for value in values.values())


def test_losses_are_read_once_they_are_there() -> None:
    values = {1: Later(1.0, is_done=True), 2: Later(1.0), 3: Later(1.0, is_done=True)}
    hook = NanTensorHook("loss")
    run = started([hook], losses(values))
    for _ in range(3):
        step_once(run, [hook], [0])
    assert [value.is_read for value in values.values()] == [True, False, False]


def test_at_the_latest_it_fails_when_all_are_read() -> None:
    for how in ("settle", "end"):
        hook = NanTensorHook("loss")
        run = started([hook], losses({2: Later(NAN)}, Later(1.0)))
        for _ in range(3):
            step_once(run, [hook], [0])
        with pytest.raises(NanLossDuringTrainingError):
            hook.settle() if how == "settle" else hook.end(run.session)
        hook.settle()


def test_a_stop_found_by_settling_is_requested_after_the_next_step(log: pytest.LogCaptureFixture) -> None:
    hook = NanTensorHook("loss", fail_on_nan_loss=False)
    run = started([hook], losses({1: Later(NAN)}, Later(1.0)))
    step_once(run, [hook], [0])
    hook.settle()
    assert run.stopped_at is None
    step_once(run, [hook], [0])
    assert run.stopped_at == 2
    assert log.messages == ["Model diverged with loss = NaN."]


def test_a_second_run_starts_anew() -> None:
    hook = NanTensorHook("loss", fail_on_nan_loss=False)
    assert run_each([hook], 3, losses({1: NAN})).stopped_at == 1
    assert run_each([hook], 3, losses({})).stopped_at is None


def test_several_steps_at_once() -> None:
    hooks = [NanTensorHook("loss"), StopAtStepHook(num_steps=20)]
    assert run_paced(hooks, 100, losses({})).called == [[20], [20]]
