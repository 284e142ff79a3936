"""What rounding has taken from gradients, as a part of the state of a step program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step import error_feedback
from lockstep._engine.step.aggregation import Shards
from lockstep._engine.step.batches import BatchFn, GatherIndices
from lockstep._engine.step.eager import EagerProgram
from lockstep._engine.step.program import StepProgram, adapter_for
from lockstep._engine.step.reduction import Reduction
from lockstep._engine.step.replicas import AXIS, Replicas
from lockstep.errors import ArgumentError, CheckpointError, UnsupportedError

NARROW = Reduction(wire="bfloat16")
X = np.random.default_rng(0).normal(size=(24, 3)).astype("float32")


def _replicas(count: int, reduction: Reduction | None = NARROW) -> Replicas:
    return Replicas(Runtime(), jax.local_devices()[:count], reduction=reduction)


def _program(replicas: Replicas, **options: Any) -> StepProgram:
    """Gradient descent on a line; what is kept for each gradient is plain to see."""
    shares = Shards([None], [1 / replicas.count], AXIS, replicas.count, replicas.reduction or Reduction())

    def gradients(state: Any, data: Any) -> Any:
        return jax.grad(lambda s: jnp.mean((data @ s["w"] + s["b"] - 1) ** 2))(state)

    def whole(state: Any, data: Any) -> Any:
        return {}, jax.tree.map(lambda s, g: s - 0.1 * g, state, gradients(state, data))

    def own(state: Any, data: Any) -> Any:
        found = shares.mean_of_gradients([gradients(state, data)])
        return {}, jax.tree.map(lambda s, g: s - 0.1 * g, state, found)

    return StepProgram(whole, replicas, adapter_for(replicas, own), **options)


def _state(program: Any) -> Any:
    return {"w": program.place_state(jnp.ones(3)), "b": program.place_state(jnp.zeros(()))}


def _run(program: Any, state: Any, batches: Sequence[Any]) -> Any:
    for batch in batches:
        _, state = program(state, program.place_batch(batch))
    return state


def _same(one: Any, other: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.asarray(a), np.asarray(b)), one, other)


def test_each_replica_has_its_own_and_the_same_weights() -> None:
    program = _program(_replicas(4))
    state = _run(program, _state(program), [X[:8], X[8:16]])
    kept = program.extra_state()
    assert {name: value.shape for name, value in kept.items()} == {"0": (4,), "1": (4, 3)}
    assert len(np.unique(kept["1"])) > 4 and np.abs(kept["1"]).max() > 0
    for value in jax.tree.leaves(state):
        first, *others = (np.asarray(s.data) for s in value.addressable_shards)
        for other in others:
            np.testing.assert_array_equal(other, first)


def test_a_run_that_is_resumed_is_the_same_run() -> None:
    batches = [X[i : i + 8] for i in (0, 8, 16, 4)]
    program = _program(_replicas(4))
    expected = _run(program, _state(program), batches)
    first, second = (_program(_replicas(4)) for _ in range(2))
    half = _run(first, _state(first), batches[:2])
    saved = first.extra_state()
    second.restore_extra_state(saved)
    _same(second.extra_state(), saved)
    start = jax.tree.map(lambda v: second.place_state(np.asarray(v)), half)
    _same(_run(second, start, batches[2:]), expected)
    _same(second.extra_state(), program.extra_state())


@pytest.mark.parametrize("count", [1, 2, 3])
def test_other_replicas_share_the_sum(count: int) -> None:
    program = _program(_replicas(4))
    _run(program, _state(program), [X[:8]])
    saved = program.extra_state()
    other = _program(_replicas(3))
    other.restore_extra_state({name: value[:count] for name, value in saved.items()})
    for name, value in other.extra_state().items():
        assert len(value) == 3
        np.testing.assert_allclose(value.sum(0), saved[name][:count].sum(0), rtol=1e-6, atol=1e-12)


def test_several_steps_of_a_dispatch_hand_them_on() -> None:
    """The same bits as one after another: each step is compiled alike."""
    program, one = _program(_replicas(4)), _program(_replicas(4))
    recipe = BatchFn("rows", lambda arrays, rows: arrays[0][rows])
    arrays = (program.place_state(jnp.asarray(X)),)
    shapes = jax.ShapeDtypeStruct((8, 3), "float32")
    batches = [GatherIndices(recipe, arrays, np.arange(i, i + 8, dtype="int32"), shapes) for i in (0, 8, 16)]
    for each in (program, one):
        each.decide(_state(each), batches[0])
    placed = program.place(batches)
    assert placed.capacity
    _, together = program.run(_state(program), placed)
    state = _state(one)
    for number in range(3):
        _, state = one.run(state, placed.slice_steps(number, 1))
    _same(together, state)
    _same(program.extra_state(), one.extra_state())
    assert np.abs(program.extra_state()["1"]).max() > 0


def test_uneven_batches_travel_as_they_are_and_leave_them() -> None:
    program, plain = _program(_replicas(4)), _program(_replicas(4, None))
    state = _run(program, _state(program), [X[:8]])
    kept = program.extra_state()
    expected = _run(plain, jax.tree.map(lambda v: plain.place_state(np.asarray(v)), state), [X[:7]])
    _same(_run(program, state, [X[:7]]), expected)
    _same(program.extra_state(), kept)


def test_who_rounds_nothing_keeps_nothing() -> None:
    replicas = _replicas(4, None)
    for program in (_program(replicas), EagerProgram(lambda s, d: ({}, s), replicas)):
        program.restore_extra_state({"0": np.ones(4)})
        assert program.extra_state() == {}


@pytest.mark.parametrize(
    "values",
    [
        {"1": np.ones((4, 3), "float32")},
        {"0": np.float32(1)},
        {"0": np.ones(4, "int32")},
        {"a": np.ones(4), "0": np.ones(4)},
    ],
)
def test_other_things_cannot_be_restored(values: Mapping[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=r'named "0", "1"'):
        _program(_replicas(2)).restore_extra_state(values)


def test_those_of_another_model_cannot_be_restored() -> None:
    program = _program(_replicas(2))
    program.restore_extra_state({"0": np.ones((2, 7), "float32")})
    with pytest.raises(CheckpointError, match=r"Received: 1 \(float32\(2, 7\)\); the step has 2 \(float32"):
        _run(program, _state(program), [X[:8]])


def test_nothing_restored_means_zeros() -> None:
    program, new = _program(_replicas(2)), _program(_replicas(2))
    _run(program, _state(program), [X[:8]])
    program.restore_extra_state({})
    assert program.extra_state() == {}
    _same(_run(program, _state(program), [X[:8]]), _run(new, _state(new), [X[:8]]))


@pytest.mark.parametrize(
    "inside",
    [
        lambda f, v: lax.scan(lambda c, _: (f(c), None), v, None, length=2)[0],
        lambda f, v: lax.cond(v[0] > 0, f, lambda v: v, v),
        lambda f, v: jax.jit(f)(v),
    ],
)
def test_gradients_inside_of_loops_are_refused(inside: Any) -> None:
    replicas = _replicas(2)
    shares = Shards([None], [0.5], AXIS, 2, NARROW)

    def own(state: Any, data: Any) -> Any:
        return {}, inside(lambda v: shares.mean_of_gradients([v * data.sum()]), state)

    program = StepProgram(lambda s, d: ({}, s), replicas, adapter_for(replicas, own))
    with pytest.raises(UnsupportedError, match="averaged at the top of a training step"):
        program(program.place_state(jnp.ones(3)), program.place_batch(X[:8]))


def test_other_gradients_than_before_are_refused() -> None:
    replicas = _replicas(2)
    shares = Shards([None], [0.5], AXIS, 2, NARROW)
    for more in (0, 2):

        def own(state: Any, data: Any, more: int = more) -> Any:
            count = 1 if data.shape[0] == 4 else more
            return {}, [shares.mean_of_gradients([v * data.sum()]) if i < count else v for i, v in enumerate(state)]

        program = StepProgram(lambda s, d: ({}, s), replicas, adapter_for(replicas, own))
        state = [program.place_state(jnp.ones(3)), program.place_state(jnp.ones(2))]
        _, state = program(state, program.place_batch(X[:8]))
        with pytest.raises(ArgumentError, match="gradients of the same number"):
            program(state, program.place_batch(X[:4]))


def test_only_steps_of_a_program_compensate() -> None:
    with pytest.raises(AssertionError, match="in training steps"):
        error_feedback.current()
