"""Values in the log: the lines are TensorFlow's."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep.errors import ArgumentError
from lockstep.estimator._hooks import LoggingTensorHook, NanTensorHook
from tests.estimator.hooks.conftest import Clock
from tests.estimator.hooks.fakes import FakeSession, run_each, run_paced


def session(start: int = 0) -> FakeSession:
    """One whose loss says after which step it is."""
    return FakeSession(start, {"loss": lambda step: np.float32(step / 4), "foo": np.float32(42.0)})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"every_n_iter": 0}, "invalid every_n_iter=0"),
        ({"every_n_iter": -10}, "invalid every_n_iter=-10"),
        ({"every_n_iter": 5, "every_n_secs": 5}, "exactly one of"),
        ({"every_n_iter": 5, "every_n_secs": 5, "at_end": True}, "exactly one of"),
        ({}, "exactly one of"),
    ],
)
def test_when_must_be_clear(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        LoggingTensorHook(tensors=["t"], **arguments)


def test_what_must_be_clear() -> None:
    with pytest.raises(ArgumentError, match="received"):
        LoggingTensorHook("loss", every_n_iter=1)


def test_the_lines_of_training(clock: Clock, log: pytest.LogCaptureFixture) -> None:
    hook = LoggingTensorHook({"step": "global_step", "loss": "loss"}, every_n_iter=100)
    run_each([hook], 250, session(), after=lambda step: clock.tick(0.00088))
    assert log.messages == [
        "loss = 0.25, step = 1",
        "loss = 25.25, step = 101 (0.088 sec)",
        "loss = 50.25, step = 201 (0.088 sec)",
    ]
    assert {(record.name, record.levelname) for record in log.records} == {("lockstep", "INFO")}


def test_steps_are_counted_from_the_first_made_here(log: pytest.LogCaptureFixture) -> None:
    run_each([LoggingTensorHook(["global_step"], every_n_iter=10)], 25, session(1234))
    assert [line.split(" (")[0] for line in log.messages] == [f"global_step = {n}" for n in (1235, 1245, 1255)]


def test_runs_that_make_no_step_count(log: pytest.LogCaptureFixture) -> None:
    stuck = session()

    def undo(step: int) -> None:
        stuck.step = 0

    run_each([LoggingTensorHook(["foo"], every_n_iter=10)], 25, stuck, after=undo)
    assert len(log.messages) == 3


@pytest.mark.parametrize("at_end", [False, True])
def test_a_second_run_starts_anew(at_end: bool, log: pytest.LogCaptureFixture) -> None:
    hook = LoggingTensorHook(["foo"], every_n_iter=10, at_end=at_end)
    for _ in range(2):
        log.clear()
        run_each([hook], 32, session())
        assert len(log.messages) == 4 + at_end
        assert log.messages[0] == "foo = 42.0"
        assert all(line.startswith("foo = 42.0 (") for line in log.messages[1:])


@pytest.mark.parametrize("at_end", [False, True])
def test_every_n_secs(at_end: bool, clock: Clock, log: pytest.LogCaptureFixture) -> None:
    hook = LoggingTensorHook(["foo"], every_n_secs=1.0, at_end=at_end)
    run_each([hook], 9, session(), after=lambda step: clock.tick(0.25))
    # Whether it is time is asked before a step, and it is logged after it.
    assert log.messages == ["foo = 42.0", "foo = 42.0 (1.250 sec)"] + ["foo = 42.0 (0.750 sec)"] * at_end


def test_at_the_end_only(log: pytest.LogCaptureFixture) -> None:
    hook = LoggingTensorHook(["loss"], at_end=True)
    assert run_each([hook], 3, session(), ends=False).called == [[1, 2, 3]]
    assert log.messages == []
    hook.end(session(3))
    assert log.messages == ["loss = 0.75"]


def test_without_a_step_there_is_nothing_to_log(log: pytest.LogCaptureFixture) -> None:
    run_each([LoggingTensorHook(["loss"], at_end=True)], 0, FakeSession())
    assert log.messages == []


def test_a_list_keeps_its_order_and_a_dict_is_sorted(log: pytest.LogCaptureFixture) -> None:
    for tensors in (["loss", "foo"], {"loss": "loss", "foo": "foo"}):
        run_each([LoggingTensorHook(tensors, every_n_iter=10)], 1, session())
    assert log.messages == ["loss = 0.25, foo = 42.0", "foo = 42.0, loss = 0.25"]


def test_a_formatter(log: pytest.LogCaptureFixture) -> None:
    hook = LoggingTensorHook(["foo"], every_n_iter=1, formatter=lambda values: f"100%s qqq={values['foo']}")
    run_each([hook], 2, session())
    assert log.messages == ["100%s qqq=42.0"] * 2


def test_small_numbers_are_not_written_with_exponents(log: pytest.LogCaptureFixture) -> None:
    values = {"p": np.array([1e-7, 0.5], "float32")}
    before = np.get_printoptions()
    run_each([LoggingTensorHook(["p"], every_n_iter=1)], 1, FakeSession(values=values))
    assert log.messages == ["p = [0.0000001 0.5      ]"]
    assert np.get_printoptions() == before


def test_values_of_a_model_fn(log: pytest.LogCaptureFixture) -> None:
    """What the hook holds while a model_fn is traced is what it asks for."""
    hooks = []

    @jax.make_jaxpr
    def model_fn(x: jax.Array) -> jax.Array:
        hooks.append(LoggingTensorHook({"double": 2 * x}, every_n_iter=1))
        return x

    model_fn(1.0)
    (tracer,) = hooks[0]._tensors.values()
    assert isinstance(tracer, jax.core.Tracer)
    run_each(hooks, 1, FakeSession(values={id(tracer): 2.0}))
    assert log.messages == ["double = 2.0"]


def test_values_in_a_list_have_their_place_as_their_tag() -> None:
    hook = LoggingTensorHook(["loss", np.zeros(1)], every_n_iter=1)
    assert list(hook._tensors) == ["loss", "tensors[1]"]


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(every=st.integers(1, 30), start=st.integers(0, 50), steps=st.integers(1, 120), only_due=st.booleans())
def test_several_steps_at_once(
    every: int, start: int, steps: int, only_due: bool, log: pytest.LogCaptureFixture
) -> None:
    """The same lines, whether the hook is called around each step or around those that concern it."""
    lines = []
    for run in (run_each, run_paced):
        log.clear()
        kind = {} if run is run_each else {"only_due": only_due}
        hooks = [LoggingTensorHook(["loss"], every_n_iter=every), NanTensorHook("loss")]
        done = run(hooks, steps, session(start), **kind)
        assert done.session.step == start + steps
        lines.append([line.split(" (")[0] for line in log.messages])
    assert lines[0] == lines[1]
    assert len(lines[0]) == -(-steps // every)
