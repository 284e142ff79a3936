"""Step programs whose replicas train by themselves for rounds of steps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step import local_sgd
from lockstep._engine.step.local_sgd import COMMON, OWN, PARAMETER, LocalSGD, LocalTraining
from lockstep._engine.step.program import StepProgram, adapter_for
from lockstep._engine.step.replicas import LocalSGDOptions, Replicas
from lockstep.errors import CheckpointError

COUNT, INNER, RATE = 4, 0.5, 0.2
X = np.random.default_rng(0).normal(size=(64, 3)).astype("float32")
PARAMETERS = ("b", "w")
State = dict[str, Any]


def _step(state: State, data: Any) -> tuple[Any, State]:
    """Gradient descent with momentum on a line, with something of each kind."""
    loss, found = jax.value_and_grad(lambda p: jnp.mean((data @ p["w"] + p["b"] - 1) ** 2))(
        {k: state[k] for k in PARAMETERS}
    )
    own = {k: INNER * state[f"m{k}"] + found[k] for k in PARAMETERS}
    after = {k: state[k] - RATE * state["rate"] * own[k] for k in PARAMETERS}
    after |= {f"m{k}": v for k, v in own.items()}
    after |= {"rate": state["rate"], "steps": state["steps"] + 1, "rows": state["rows"] + data.shape[0]}
    return {"loss": loss}, {**after, "mean": 0.5 * state["mean"] + 0.5 * data.mean(0)}


ROLES = {
    **dict.fromkeys(PARAMETERS, PARAMETER),
    **dict.fromkeys(("mb", "mw"), OWN),
    **dict.fromkeys(("rate", "steps"), COMMON),
    "rows": local_sgd.metric_role("sum"),
    "mean": local_sgd.role_of(False, "mean"),
}


def _first() -> State:
    zeros = {k: np.zeros(3 if k.endswith("w") else (), "float32") for k in ("w", "b", "mw", "mb", "rows")}
    return {**zeros, "rate": np.ones((), "float32"), "steps": np.zeros((), "int32"), "mean": np.zeros(3, "float32")}


def _program(rounds: LocalSGDOptions, count: int = COUNT, **options: Any) -> StepProgram:
    replicas = Replicas(Runtime(), jax.local_devices()[:count], "replica", local_sgd=rounds)
    return StepProgram(
        _step, replicas, adapter_for(replicas, local=LocalTraining(rounds, _step, lambda state: ROLES)), **options
    )


def _begin(program: StepProgram) -> State:
    return {k: program.place_state(jnp.asarray(v)) for k, v in _first().items()}


def _run(program: StepProgram, state: State, batches: Sequence[Any]) -> State:
    for batch in batches:
        _, state = program(state, program.place_batch(batch))
    return state


def _local(program: StepProgram, state: State) -> State:
    return {k: np.asarray(program.local(v)) for k, v in state.items()}


def _expected(rounds: LocalSGDOptions, batches: Sequence[Any]) -> State:
    """The same in numpy: replica by replica, then what the paper says."""
    seen, momentum = _first(), {k: 0.0 for k in PARAMETERS}
    mine = [_first() for _ in range(COUNT)]
    for number, batch in enumerate(batches, 1):
        is_whole = len(batch) % COUNT > 0
        for i, one in enumerate(mine):
            share = batch if is_whole else np.split(batch, COUNT)[i]
            error = share @ one["w"] + one["b"] - 1
            one["mb"] = INNER * one["mb"] + 2 * error.mean()
            one["mw"] = INNER * one["mw"] + 2 * error @ share / len(share)
            one["b"], one["w"] = one["b"] - RATE * one["mb"], one["w"] - RATE * one["mw"]
            one["rows"] = one["rows"] + (0 if is_whole and i else len(share))
            one["mean"], one["steps"] = 0.5 * one["mean"] + 0.5 * share.mean(0), one["steps"] + 1
        if number % rounds.every and number < len(batches):
            continue
        for k in PARAMETERS:
            change = np.mean([one[k] for one in mine], 0) - seen[k]
            momentum[k] = rounds.momentum * momentum[k] + change
            step = change + rounds.momentum * momentum[k] if rounds.nesterov else momentum[k]
            seen[k] = seen[k] + rounds.learning_rate * step
        seen["rows"] = seen["rows"] + sum(one["rows"] - seen["rows"] for one in mine)
        seen["mean"] = np.mean([one["mean"] for one in mine], 0)
        for one in mine:
            one.update({k: seen[k] for k in (*PARAMETERS, "rows", "mean")})
    return {**mine[0], **{k: seen[k] for k in (*PARAMETERS, "rows", "mean")}}


def _batches(sizes: Sequence[int]) -> list[Any]:
    starts = np.random.default_rng(1).integers(0, 64 - 8, len(sizes))
    return [X[start : start + size] for start, size in zip(starts, sizes, strict=True)]


ROUNDS = st.builds(
    LocalSGDOptions,
    st.integers(1, 5),
    st.sampled_from([1.0, 0.7]),
    st.sampled_from([0.0, 0.9]),
    st.booleans(),
)


@pytest.mark.slow
@settings(max_examples=3)
@given(ROUNDS, st.lists(st.sampled_from([8, 8, 4, 6, 3]), min_size=1, max_size=9), st.data())
def test_it_is_what_the_paper_says_and_goes_on_to_the_bit(rounds: LocalSGDOptions, sizes: list[int], data: Any) -> None:
    batches = _batches(sizes)
    program = _program(rounds)
    state = _local(program, program.synchronize(_run(program, _begin(program), batches), ends=True))
    for name, value in _expected(rounds, batches).items():
        np.testing.assert_allclose(state[name], value, rtol=2e-4, atol=2e-5, err_msg=name)
    cut = data.draw(st.integers(0, len(batches)))
    before = _run(program, _begin_anew(program), batches[:cut])
    saved, seen = program.extra_state(), _local(program, before)
    program.restore_extra_state(saved)
    after = _run(program, {k: program.place_state(jnp.asarray(v)) for k, v in seen.items()}, batches[cut:])
    for name, value in _local(program, program.synchronize(after, ends=True)).items():
        np.testing.assert_array_equal(value, state[name], err_msg=name)


def _begin_anew(program: StepProgram) -> State:
    """A new training with a program that is compiled already."""
    program.restore_extra_state({})
    return _begin(program)


@pytest.mark.slow
def test_steps_may_be_put_together_in_any_way() -> None:
    rounds = LocalSGDOptions(3, 0.7, 0.9, True)
    found: list[State] = []
    program = _program(rounds)
    batches = _batches([8] * 8)
    program.follow([1, 0, 1, COUNT])
    for pieces in ([8], [1] * 8, [2, 5, 1]):
        placed, state, done = program.place(batches), _begin_anew(program), 0
        assert placed.capacity >= 8
        for left in pieces:
            while left:
                steps = min(left, program.max_steps)
                _, state = program.run(state, placed.slice_steps(done, steps))
                done, left = done + steps, left - steps
        found.append(_local(program, program.synchronize(state, ends=True)))
    for other in found[1:]:
        for name, value in found[0].items():
            np.testing.assert_array_equal(other[name], value, err_msg=name)
    for name, value in _expected(rounds, batches).items():
        np.testing.assert_allclose(found[0][name], value, rtol=2e-4, atol=2e-5, err_msg=name)


def test_replicas_differ_in_a_round_and_metrics_are_told_at_any_time() -> None:
    program = _program(LocalSGDOptions(4, 0.7, 0.9, True))
    state = _run(program, _begin(program), _batches([8, 8]))
    kept = program.extra_state()
    names = sorted(ROLES)
    own = kept[f"own/{names.index('w')}"]
    assert own.shape == (COUNT, 3) and len(np.unique(own[:, 0])) == COUNT
    shown = _local(program, state)
    assert not shown["w"].any() and shown["steps"] == 2 and shown["rows"] == 0
    np.testing.assert_array_equal(shown["mw"], kept[f"own/{names.index('mw')}"][0])
    shown = _local(program, program.synchronize(state, ends=False))
    assert not shown["w"].any() and shown["rows"] == 16
    np.testing.assert_array_equal(program.extra_state()[f"own/{names.index('w')}"], own)


@pytest.mark.slow
def test_what_is_changed_from_outside_counts_for_all() -> None:
    program = _program(LocalSGDOptions(3, 1.0, 0.0, False))
    state = _run(program, _begin(program), _batches([8, 8]))
    own = program.extra_state()[f"own/{sorted(ROLES).index('b')}"]
    # As after an evaluation: other arrays with the same content, and one with another.
    again = {k: program.place_state(jnp.asarray(program.local(v))) for k, v in state.items() if k not in ("mw", "mb")}
    state = {**state, **again}
    state["w"] = program.place_state(jnp.full(3, 5.0))
    state["rate"] = program.place_state(jnp.zeros(()))
    state["mb"] = program.place_state(jnp.ones(()))
    after = _local(program, _run(program, state, _batches([8])))
    np.testing.assert_allclose(after["w"], np.full(3, 5.0))
    np.testing.assert_allclose(after["b"], own.mean(), rtol=1e-6)
    assert len(program.extra_state()[f"own/{sorted(ROLES).index('mb')}"]) == COUNT


@pytest.mark.slow
def test_replicas_exchange_at_the_end_of_a_round_alone() -> None:
    program = _program(LocalSGDOptions(50, 0.7, 0.9, True))
    program.follow([1, 0, 1, COUNT])
    for placed in (program.place_batch(X[:8]), program.place(_batches([8] * 4)), program.place_batch(X[:6])):
        carried = program._adapter.wrap(_begin_anew(program), placed.split, dict)
        if placed.capacity:
            steps = np.int32(placed.first), np.int32(placed.steps)
            lowered = program._run_several.lower(placed.split, placed.batch_fn, carried, placed.data, *steps)
        else:
            lowered = program._run_one.lower(placed.split, placed.counts, placed.batch_fn, carried, placed.data)
        assert _exchanged(lowered.compile().as_text()) == 0
    local: Any = program._adapter
    # The changes of `w` and `b`, and what is told of `rows` and `mean`; never what optimizers keep.
    for what, numbers in (("outer_step", 3 + 1 + 1 + 3), ("combine_metrics", 1), ("follow", 0)):
        assert _exchanged(local._apply.lower(what, local._outer).compile().as_text()) == 4 * numbers


def _exchanged(text: str) -> int:
    """How many bytes are added up over the replicas; there is no other exchange."""
    assert not re.search(r"= \S+ (all-gather|all-to-all|collective-permute|reduce-scatter)", text)
    results = re.findall(r"= (.*?) all-reduce(?:-start)?\(", text)
    shapes = [shape for result in results for shape in re.findall(r"f32\[([\d,]*)\]", result)]
    return 4 * sum(int(np.prod([int(n) for n in shape.split(",") if n], initial=1)) for shape in shapes)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_other_replicas_begin_with_the_mean(count: int) -> None:
    rounds = LocalSGDOptions(3, 1.0, 0.0, False)
    program, other = _program(rounds), _program(rounds, count)
    state = _run(program, _begin(program), _batches([8, 8]))
    saved, seen = program.extra_state(), _local(program, state)
    other.restore_extra_state(saved)
    state = other.synchronize({k: other.place_state(jnp.asarray(v)) for k, v in seen.items()}, ends=True)
    mean = saved[f"own/{sorted(ROLES).index('w')}"].mean(0)
    np.testing.assert_allclose(_local(other, state)["w"], mean, rtol=1e-6)
    assert other.extra_state()["common/count"].item() == 0


def test_a_training_of_another_kind_is_refused() -> None:
    program = _program(LocalSGDOptions(3, 1.0, 0.0, False))
    with pytest.raises(CheckpointError, match=r"goes on from a checkpoint of one\. Received: one that holds \['0'\]"):
        program.restore_extra_state({"0": np.zeros((COUNT, 3), "float32")})
    program = _program(LocalSGDOptions(3, 1.0, 0.0, False))
    program.restore_extra_state({"common/count": np.ones(1, "int32"), "own/7": np.zeros((COUNT, 7), "float32")})
    with pytest.raises(CheckpointError, match=r"own/7, float32\(4, 7\), where the training has float32\(4, 3\)"):
        _run(program, _begin(program), [X[:8]])
    program.restore_extra_state({"common/count": np.ones(1, "int32"), "common/momentum/0": np.zeros((1, 3), "float32")})
    with pytest.raises(CheckpointError, match=r"momentum/0, float32\(1, 3\), where the training has nothing"):
        _run(program, _begin(program), [X[:8]])


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=6, max_size=6), st.data())
@settings(max_examples=50)
def test_marks_tell_arrays_apart(values: list[float], data: Any) -> None:
    one = np.asarray(values, "float32")
    other = np.asarray(data.draw(st.permutations(values)), "float32")
    marks = [np.asarray(_marked(value)) for value in (one, other)]
    assert (marks[0] == marks[1]).all() == (one.tobytes() == other.tobytes())


_marked = jax.jit(local_sgd.mark_of)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "float16", "bfloat16", "float32"])
def test_zeros_are_marked_by_zeros(dtype: str) -> None:
    """Replicas begin with zeros."""
    assert not np.asarray(local_sgd.mark_of(jnp.zeros((2, 3), dtype))).any()
    assert np.asarray(local_sgd.mark_of(jnp.ones((2, 3), dtype))).any()


def test_nothing_is_made_before_there_is_something() -> None:
    replicas = Replicas(Runtime(), jax.local_devices()[:2], "replica")
    state = LocalSGD(LocalTraining(LocalSGDOptions(2, 1.0, 0.0, False), _step, lambda state: ROLES), replicas)
    given_state = {"w": object()}
    assert state.synchronize(given_state, ends=True) is given_state and state.extra_state() == {}


def test_one_replica_that_averages_trains_as_without_rounds() -> None:
    rounds, batches = LocalSGDOptions(5, 1.0, 0.0, False), _batches([8] * 7)
    plain = StepProgram(_step, Replicas(Runtime(), jax.local_devices()[:1]))
    program = _program(rounds, 1)
    expected, found = _run(plain, _begin(plain), batches), _run(program, _begin(program), batches)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    assert program.extra_state() == {} and program.max_steps == plain.max_steps


@pytest.mark.slow
def test_one_replica_goes_on_in_a_round_of_several() -> None:
    """It begins with the mean of what they had come to."""
    rounds, (first, second) = LocalSGDOptions(5, 1.0, 0.0, False), _batches([8, 8])
    several, one = _program(rounds), _program(rounds, 1)
    seen = _local(several, _run(several, _begin(several), [first]))
    saved = several.extra_state()
    one.restore_extra_state({})
    one.restore_extra_state(saved)
    state = _run(one, {k: one.place_state(jnp.asarray(v)) for k, v in seen.items()}, [second])
    found = _local(one, one.synchronize(state, ends=True))
    names = sorted(seen)
    own = {k: saved[f"own/{i}"].mean(0) if f"own/{i}" in saved else seen[k] for i, k in enumerate(names)}
    _, expected = _step({k: jnp.asarray(v, seen[k].dtype) for k, v in own.items()}, second)
    for name in ("w", "b", "mean"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-6, err_msg=name)
