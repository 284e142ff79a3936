"""What hooks exchange with the loop, and how often they must be called."""

from __future__ import annotations

import pytest

from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.estimator._hooks import (
    FeedFnHook,
    FinalOpsHook,
    GlobalStepWaiterHook,
    LoggingTensorHook,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopAtStepHook,
    next_call,
)
from tests.estimator.hooks.fakes import FakeSession, run_each


def test_nothing_can_be_fed() -> None:
    with pytest.raises(UnsupportedError, match="input_fn"):
        SessionRunArgs("loss", feed_dict={"x": 1})
    with pytest.raises(UnsupportedError, match="options=1"):
        SessionRunArgs("loss", None, 1)
    with pytest.raises(UnsupportedError, match="input_fn"):
        FeedFnHook(dict)
    with pytest.raises(UnsupportedError, match="input_fn"):
        FinalOpsHook("loss", {"x": 1})


def test_a_hook_that_overrides_nothing() -> None:
    hook, session = SessionRunHook(), FakeSession()
    run = run_each([hook], 2, session)
    assert run.stopped_at is None
    assert hook.before_run(SessionRunContext(None, session)) is None


def test_a_context() -> None:
    arguments, session = SessionRunArgs("loss"), FakeSession()
    context = SessionRunContext(arguments, session)
    assert (context.original_args, context.session, context.steps) == (arguments, session, 1)
    assert not context.stop_requested
    context.request_stop()
    assert context.stop_requested
    assert SessionRunValues(1) == (1, None, None)


class Stopper(StopAtStepHook):
    """Adds something to a hook that knows its pace."""

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        super().after_run(run_context, run_values)


class PacedStopper(Stopper):
    """The same, and says when."""

    def next_step(self, step: int) -> int:
        return step + 7


class Silent(SessionRunHook):
    """Has nothing to do with steps."""

    def end(self, session: object) -> None: ...


class Late(StopAtStepHook):
    """A subclass that changes nothing about steps."""

    def begin(self) -> None: ...


@pytest.mark.parametrize(
    ("hook", "step", "following"),
    [
        (StopAtStepHook(last_step=9), 3, 9),
        (StopAtStepHook(last_step=9), 9, 10),
        (Late(last_step=9), 3, 9),
        (Stopper(last_step=9), 3, 4),
        (PacedStopper(last_step=9), 3, 10),
        (Silent(), 3, None),
        (SessionRunHook(), 3, None),
        (FinalOpsHook("loss"), 3, None),
        (LoggingTensorHook(["loss"], at_end=True), 3, None),
    ],
)
def test_when_a_hook_must_be_called(hook: SessionRunHook, step: int, following: int | None) -> None:
    assert next_call(hook, step) == following


def test_a_method_that_is_replaced_is_called_each_time() -> None:
    hook = FinalOpsHook("loss")
    hook.after_run = lambda context, values: None
    assert next_call(hook, 3) == 4


def test_final_values() -> None:
    hook = FinalOpsHook({"loss": "loss", "step": "global_step"})
    assert hook.final_ops_values is None
    run_each([hook, FinalOpsHook(None)], 2, FakeSession(values={"loss": 0.5}))
    assert hook.final_ops_values == {"loss": 0.5, "step": 2}


@pytest.mark.parametrize(("until", "step"), [(0, 0), (-3, 0), (5, 5), (5, 9)])
def test_a_step_that_is_reached_is_not_waited_for(until: int, step: int) -> None:
    hook = GlobalStepWaiterHook(until)
    assert next_call(hook, step) == step + 1
    run_each([hook], 2, FakeSession(step))
    assert next_call(hook, step) is None
    hook.begin()
    assert next_call(hook, step) == step + 1


def test_no_worker_can_wait_for_the_others() -> None:
    with pytest.raises(ArgumentError, match=r"wait_until_step=5\) at global step 4"):
        run_each([GlobalStepWaiterHook(5)], 2, FakeSession(4))
