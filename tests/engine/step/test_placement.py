"""Batches and state on four devices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.batches import Split, to_arrays
from lockstep._engine.step.eager import EagerProgram
from lockstep._engine.step.placement import broadcast_from_chief, local_copy, place_batch, replicate
from lockstep._engine.step.program import StepProgram
from lockstep._engine.step.replicas import Replicas
from lockstep.errors import InputError


@pytest.fixture(scope="module")
def replicas() -> Replicas:
    """Four replicas in this process."""
    return Replicas(Runtime(), jax.local_devices())


@pytest.mark.parametrize(
    ("batch", "split"),
    [
        (np.zeros((8, 3)), Split.EVEN),
        (np.zeros((4,)), Split.EVEN),
        (np.zeros((7, 3)), Split.UNEVEN),
        (np.zeros((3, 3)), Split.WHOLE),
        (np.zeros((0, 3)), Split.WHOLE),
        (np.float32(3), Split.WHOLE),
        ((np.zeros((8, 3)), None, np.zeros(8)), Split.EVEN),
        ({"a": np.zeros((8, 3)), "b": [np.zeros((8, 2)), 1.5]}, Split.EVEN),
        ((np.zeros((8, 3)), np.zeros((5, 5))), Split.WHOLE),
        ((), Split.WHOLE),
    ],
    ids=lambda p: p.name if isinstance(p, Split) else None,
)
def test_how_a_batch_is_divided(replicas: Replicas, batch: Any, split: Split) -> None:
    placed = place_batch(replicas, batch)
    assert placed.split is split
    assert jax.tree.structure(placed.data) == jax.tree.structure(batch)
    for mine, given_ in zip(jax.tree.leaves(placed.data), jax.tree.leaves(batch), strict=True):
        np.testing.assert_array_equal(mine, given_)
        assert len(mine.sharding.device_set) == 4


@given(rows=st.integers(1, 40))
def test_shares_are_equal_and_in_order(rows: int) -> None:
    replicas = Replicas(Runtime(), jax.local_devices())
    placed = place_batch(replicas, np.arange(rows))
    assert (placed.split is Split.EVEN) == (rows % 4 == 0)
    if placed.split is Split.EVEN:
        shares = {s.device: np.asarray(s.data) for s in placed.data.addressable_shards}
        np.testing.assert_array_equal(np.concatenate([shares[d] for d in replicas.devices]), np.arange(rows))


@pytest.mark.parametrize(
    "leaf", [np.array(["a"]), np.array([b"a"]), np.array([object()]), "text"], ids=["a", "b", "o", "text"]
)
def test_batches_hold_numbers(leaf: Any) -> None:
    with pytest.raises(InputError, match=r"must hold numbers\. Received: .* at \['x'\]"):
        to_arrays({"x": leaf})


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "float16", "bfloat16", "complex64"])
def test_numbers_keep_their_types(replicas: Replicas, dtype: str) -> None:
    assert place_batch(replicas, np.zeros(8, jnp.dtype(dtype))).data.dtype == dtype


def test_64_bits_become_32_quietly(replicas: Replicas) -> None:
    placed = place_batch(replicas, (np.zeros(8), np.zeros(8, "int64")))
    assert [a.dtype for a in placed.data] == ["float32", "int32"]


def test_state_lies_whole_on_every_device(replicas: Replicas) -> None:
    value = jnp.arange(6.0)
    placed = replicate(replicas, value)
    assert placed.sharding.is_fully_replicated and len(placed.sharding.device_set) == 4
    assert local_copy(placed).unsafe_buffer_pointer() == placed.addressable_shards[0].data.unsafe_buffer_pointer()


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint32", "bool", "bfloat16"])
def test_the_first_replica_s_values_become_everyone_s(replicas: Replicas, dtype: str) -> None:
    parts = [jax.device_put(jnp.full((3,), i + 1).astype(dtype), d) for i, d in enumerate(replicas.devices)]
    differing = jax.make_array_from_single_device_arrays((3,), replicas.whole, parts)
    (same,) = broadcast_from_chief(replicas, [differing])
    assert same.dtype == dtype
    for shard in same.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), np.asarray(parts[0]))
    assert broadcast_from_chief(replicas, []) == []


def _step(state: Any, data: Any) -> tuple[Any, Any]:
    return {"sum": data.sum()}, state + data.mean(0)


@pytest.mark.parametrize("rows", [1, 3, 4, 7, 8])
def test_programs_compute_what_the_step_computes(replicas: Replicas, rows: int) -> None:
    data = np.arange(rows * 2, dtype="float32").reshape(rows, 2)
    expected = _step(np.ones(2, "float32"), data)
    for program in (StepProgram(_step, replicas), EagerProgram(_step, replicas)):
        outputs, state = program(program.place_state(jnp.ones(2)), program.place_batch(data))
        np.testing.assert_allclose(program.local(outputs)["sum"], expected[0]["sum"])
        np.testing.assert_allclose(program.local(state), expected[1])


def test_a_compiled_program_consumes_its_state(replicas: Replicas) -> None:
    program = StepProgram(_step, replicas)
    state = program.place_state(jnp.ones(2))
    program(state, program.place_batch(np.zeros((8, 2), "float32")))
    assert state.is_deleted()


@pytest.mark.parametrize("ids", [[2**31], [-(2**31) - 1], np.array([2**32], np.uint64)], ids=str)
def test_integers_that_do_not_fit_are_refused(ids: Any) -> None:
    with pytest.raises(InputError, match=r"32-bit integers.*\['id'\]"):
        to_arrays({"id": np.asarray(ids)})


def test_integers_that_fit_become_narrow() -> None:
    found = to_arrays({"id": np.asarray([2**31 - 1, -(2**31)])})["id"]
    assert found.dtype == np.int32
    assert found.tolist() == [2**31 - 1, -(2**31)]
