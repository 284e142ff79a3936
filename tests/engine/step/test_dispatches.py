"""How many steps one dispatch runs, and which batches go together."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step import backends, compiler, cost
from lockstep._engine.step.batches import StepsPerExecutionTuner, chunk_capacity, group_batches
from lockstep._engine.step.cost import pays
from lockstep._engine.step.program import StepProgram
from lockstep._engine.step.replicas import Replicas


def seconds(f: Any, *shapes: tuple[int, ...], platform: str = "cpu") -> float:
    arrays = [jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes]
    return cost.estimate_seconds(jax.make_jaxpr(f)(*arrays).jaxpr, platform)


def test_a_matrix_product_costs_its_multiplications_and_results() -> None:
    assert seconds(jnp.dot, (100, 200), (200, 300)) == pytest.approx(2 * 100 * 200 * 300 / 2e11 + 100 * 300 / 4e9)


def test_a_convolution_costs_its_multiplications_and_results() -> None:
    def convolution(x: Any, k: Any) -> Any:
        return jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    results = 2 * 8 * 8 * 5
    assert seconds(convolution, (2, 8, 8, 3), (3, 3, 3, 5)) == pytest.approx(2 * results * 27 / 8e10 + results / 4e9)


def test_what_a_dilated_input_is_filled_with_is_not_multiplied() -> None:
    def transposed(x: Any, k: Any) -> Any:
        return jax.lax.conv_transpose(x, k, (2, 2), "SAME")

    results = 2 * 8 * 8 * 5
    assert seconds(transposed, (2, 4, 4, 3), (3, 3, 3, 5)) == pytest.approx(2 * results * 27 / 4 / 8e10 + results / 4e9)


def test_loops_cost_their_rounds() -> None:
    def once(x: Any) -> Any:
        return x @ x

    def often(x: Any) -> Any:
        return jax.lax.scan(lambda c, _: (once(c), None), x, None, length=10)[0]

    assert seconds(often, (50, 50)) == pytest.approx(10 * seconds(once, (50, 50)))


def test_other_platforms_are_faster() -> None:
    cpu, gpu, other = (seconds(jnp.dot, (64, 64), (64, 64), platform=p) for p in ("cpu", "gpu", "tpu"))
    assert cpu > gpu > other


def test_only_short_steps_run_together() -> None:
    assert pays(0.001, 10)
    assert not pays(0.05, 10)
    assert pays(0.03, 1000)
    assert not pays(0.07, 2600)


@pytest.mark.parametrize(
    ("nbytes", "outputs", "alone", "places"),
    [(128, 0, True, 256), (128, 0, False, 16), (1 << 20, 0, True, 8), (1 << 30, 0, True, 1), (3, 1 << 20, True, 4)],
)
def test_room_in_a_chunk(nbytes: int, outputs: int, alone: bool, places: int) -> None:
    assert chunk_capacity(nbytes, outputs, alone) == places


@given(st.lists(st.integers(1, 3), max_size=40), st.integers(0, 5))
def test_groups_keep_the_order_and_hold_what_is_alike(rows: list[int], places: int) -> None:
    batches = [np.zeros((r, 2)) + i for i, r in enumerate(rows)]
    groups = list(group_batches(iter(batches), lambda batch: places))
    assert [float(b[0, 0]) for g in groups for b in g] == list(range(len(rows)))
    for group in groups:
        assert len({b.shape for b in group}) == 1
        assert len(group) <= max(1, places)


def test_nothing_is_read_before_it_is_needed() -> None:
    taken: list[int] = []

    def batches() -> Any:
        for i in range(10):
            taken.append(i)
            yield np.zeros(2)

    groups = group_batches(batches(), lambda batch: 4)
    assert len(next(groups)) == 4 == len(taken)


def test_the_pace_grows_while_dispatches_are_short() -> None:
    pace = StepsPerExecutionTuner()
    for _ in range(20):
        pace.record(pace.max_steps, 0.001)
    assert pace.max_steps == 256
    pace.record(256, 0.2)
    assert (pace.max_steps, pace.seconds) == (128, 0.2)
    pace.record(128, 0.05)
    assert (pace.max_steps, pace.seconds) == (128, 0.05)
    pace.record(1, 0.2, is_loop=False)
    assert (pace.max_steps, pace.seconds) == (128, 0.2)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("rows", [8, 7], ids=["even", "uneven"])
def test_steps_together_are_the_steps_one_by_one(replicas: int, rows: int) -> None:
    """To the bit: whatever the pieces are."""
    here = Replicas(Runtime(), jax.devices()[:replicas])

    def step(state: Any, batch: Any) -> tuple[Any, Any]:
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean(jnp.tanh(batch @ w) ** 2))(state)
        return {"loss": loss}, state - 0.1 * gradient

    def run(pieces: list[int]) -> tuple[Any, list[float]]:
        program = StepProgram(step, here, output_mode="all")
        generator = np.random.default_rng(0)
        batches = [program.prepare(generator.normal(size=(rows, 3)).astype("float32")) for _ in range(6)]
        state = program.place_state(jnp.arange(6.0).reshape(3, 2))
        program.decide(state, batches[0])
        chunk = program.place(batches)
        assert chunk.steps == 6 < chunk.capacity
        losses: list[float] = []
        at = 0
        for count in pieces:
            outputs, state = program.run(state, chunk.slice_steps(at, count))
            at += count
            losses += [float(each["loss"]) for each in outputs.each()]
            assert float(outputs.last["loss"]) == losses[-1]
        return np.asarray(program.local(state)), losses

    weights, losses = run([6])
    assert len(losses) == 6
    for pieces in ([1] * 6, [2, 3, 1]):
        again, same = run(pieces)
        np.testing.assert_array_equal(again, weights)
        assert same == losses


def test_steps_together_are_compiled_with_the_options_for_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which here are of a kind that XLA refuses, so that they are seen to reach it."""
    monkeypatch.setattr(backends, "compiler_options", lambda platform: {f"no_option_of_{platform}": True})
    program = StepProgram(lambda state, batch: ({}, state + batch), Replicas(Runtime(), jax.devices()[:1]))
    batches = [program.prepare(np.ones(3, "float32")) for _ in range(2)]
    state = program.place_state(jnp.zeros(3))
    program.decide(state, batches[0])
    with pytest.raises(jax.errors.JaxRuntimeError, match="no_option_of_cpu"):
        program.run(state, program.place(batches))


def test_a_step_that_changes_what_its_state_looks_like_runs_alone() -> None:
    program = StepProgram(
        lambda state, batch: ({}, jnp.concatenate([state, batch[:1]])), Replicas(Runtime(), jax.devices()[:1])
    )
    batch = program.prepare(np.ones(3, "float32"))
    program.decide(jnp.zeros(2), batch)
    assert program.chunk_capacity(batch) == 0


def test_memory_is_given_back_when_a_large_program_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[int] = []
    monkeypatch.setattr(compiler, "_LONG_SECONDS", 0.0)
    monkeypatch.setattr(compiler.host_memory, "release_free_memory", lambda: released.append(1))
    program = StepProgram(lambda state, batch: ({}, state + batch.sum()), Replicas(Runtime(), jax.devices()[:1]))
    state = program.place_state(jnp.zeros(()))
    counts: list[int] = []
    for rows in (2, 2, 3, 2, 3):
        _, state = program(state, program.place_batch(np.ones((rows, 1), np.float32)))
        counts.append(len(released))
    assert counts == [1, 1, 2, 2, 2]
    assert float(program.local(state)) == 12
