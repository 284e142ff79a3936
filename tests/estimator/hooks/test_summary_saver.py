"""Summaries of a model_fn, every so many steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from lockstep import summary as event_files
from lockstep.errors import ArgumentError
from lockstep.estimator import summary
from lockstep.estimator._hooks import SummarySaverHook
from lockstep.estimator._model_fn.records import SummaryOp
from lockstep.estimator._model_fn.scope import ModelScope
from lockstep.estimator._model_fn.variables import Variables
from tests.estimator.hooks.conftest import Clock
from tests.estimator.hooks.fakes import FakeSession, Run, run_each, run_paced

LOSS = SummaryOp("scalar", "loss", None)


def session(start: int = 0) -> FakeSession:
    return FakeSession(start, {"summaries": lambda step: [(LOSS, np.float32(step / 2))]})


def written(directory: Path) -> dict[int, dict[str, float]]:
    summary.FileWriterCache.clear()
    return event_files.scalars(directory)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "every_secs"),
        ({"save_steps": 1, "save_secs": 1}, "every_secs"),
        ({"save_steps": 1, "scaffold": object(), "summary_op": LOSS}, "Only one of scaffold or summary_op"),
        ({"save_steps": 1, "output_dir": None}, "output_dir or summary_writer"),
        ({"save_steps": 1, "summary_op": np.zeros(1)}, "summary_op is what lockstep"),
        ({"save_steps": 1, "summary_op": [LOSS, "loss"]}, "summary_op is what lockstep"),
    ],
)
def test_what_when_and_where_must_be_clear(arguments: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=message):
        SummarySaverHook(**{"output_dir": tmp_path, **arguments})


@pytest.mark.parametrize("run", [run_each, run_paced])
@pytest.mark.parametrize(
    ("save_steps", "start", "steps", "saved"),
    [(8, 0, 30, [1, 9, 17, 25]), (1, 0, 3, [1, 2, 3]), (100, 250, 150, [251, 351]), (10, 0, 0, [])],
)
def test_every_n_steps(
    run: Callable[..., Run], save_steps: int, start: int, steps: int, saved: list[int], tmp_path: Path
) -> None:
    run([SummarySaverHook(save_steps=save_steps, output_dir=tmp_path)], steps, session(start))
    assert written(tmp_path) == {step: {"loss": step / 2} for step in saved}


def test_every_n_secs(tmp_path: Path, clock: Clock) -> None:
    run_each([SummarySaverHook(save_secs=1.0, output_dir=tmp_path)], 9, session(), lambda step: clock.tick(0.3))
    assert list(written(tmp_path)) == [1, 6]


def test_summaries_are_asked_for_only_when_they_are_written(tmp_path: Path) -> None:
    asked = []
    values = FakeSession(values={"summaries": lambda step: asked.append(step) or [(LOSS, np.float32(0))]})
    run_each([SummarySaverHook(save_steps=4, output_dir=tmp_path)], 10, values)
    assert asked == [1, 5, 9]


def test_tensorboard_is_told_where_a_start_begins(tmp_path: Path) -> None:
    """What a run before has written of later steps is then no longer shown."""
    for start in (0, 5):
        run_each([SummarySaverHook(save_steps=5, output_dir=tmp_path)], 7, session(start))
        summary.FileWriterCache.clear()
    starts = [event for event in event_files.read_events(tmp_path) if event.HasField("session_log")]
    assert [(event.step, event.session_log.status) for event in starts] == [(1, 1), (6, 1)]


def test_all_summaries_of_a_step_are_one_event(tmp_path: Path) -> None:
    ops = [(SummaryOp("scalar", tag, None), np.float32(1)) for tag in ("a", "b")]
    run_each([SummarySaverHook(save_steps=1, output_dir=tmp_path)], 1, FakeSession(values={"summaries": ops}))
    assert written(tmp_path) == {1: {"a": 1.0, "b": 1.0}}
    assert [len(event.summary.value) for event in event_files.read_events(tmp_path)] == [0, 0, 2]


def test_a_model_fn_without_summaries(tmp_path: Path) -> None:
    run_each([SummarySaverHook(save_steps=1, output_dir=tmp_path)], 2, FakeSession(values={"summaries": []}))
    assert written(tmp_path) == {}


def test_the_first_step_of_each_run_is_written(tmp_path: Path) -> None:
    hook = SummarySaverHook(save_steps=100, output_dir=tmp_path)
    for start in (0, 3):
        run_each([hook], 3, session(start))
    assert list(written(tmp_path)) == [1, 4]


def test_a_writer(tmp_path: Path) -> None:
    with summary.FileWriter(tmp_path) as writer:
        run_each([SummarySaverHook(save_steps=1, summary_writer=writer)], 2, session())
        # At the end readers can see it.
        assert list(event_files.scalars(tmp_path)) == [1, 2]


def test_a_scaffold(tmp_path: Path) -> None:
    run_each([SummarySaverHook(save_steps=1, output_dir=tmp_path, scaffold=SimpleNamespace())], 1, session())
    assert written(tmp_path) == {1: {"loss": 0.5}}


def test_some_summaries_of_a_model_fn(tmp_path: Path) -> None:
    """The hook asks for what is traced; what is known already needs no asking."""
    hooks = []

    @jax.make_jaxpr
    def model_fn(x: jax.Array) -> jax.Array:
        with ModelScope(Variables(), "train", {}):
            ops = [summary.scalar("double", 2 * x), summary.text("note", "hello"), summary.scalar("triple", 3 * x)]
            summary.scalar("not asked for", x)
            hooks.append(SummarySaverHook(save_steps=1, output_dir=tmp_path, summary_op=ops))
            hooks.append(SummarySaverHook(save_steps=1, output_dir=tmp_path, summary_op=summary.merge_all()[0]))
        return x

    model_fn(1.0)
    double, note, triple = hooks[0]._ops
    values = {id(op.value): number for op, number in ((double, 2.0), (triple, 3.0))}
    values |= {id(leaf): np.zeros((), "int32") for leaf in jax.tree.leaves(note.value)}
    run_each(hooks[:1], 1, FakeSession(values=values))
    assert written(tmp_path) == {1: {"double": 2.0, "triple": 3.0}}
    texts = [v.tensor.string_val for e in event_files.read_events(tmp_path) for v in e.summary.value if v.tag == "note"]
    assert [list(text) for text in texts] == [[b"hello"]]
    run_each(hooks[1:], 1, FakeSession(7, values=values))
    assert written(tmp_path)[8] == {"double": 2.0}


def test_several_steps_at_once(tmp_path: Path) -> None:
    run = run_paced([SummarySaverHook(save_steps=50, output_dir=tmp_path)], 120, session())
    assert run.called == [[1, 51, 101]]
