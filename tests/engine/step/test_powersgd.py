"""Gradients that travel as two thin factors: what travels, what is applied, and what is kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.traffic.hlo import traffic
from lockstep._engine.step import error_feedback, powersgd
from lockstep._engine.step.error_feedback import Residuals
from lockstep._engine.step.reduction import Reduction
from tests.engine.step.collectives import on_each

# Of each kind: factored at rank 1, some at rank 2, some never.
SHAPES = [(24, 16), (5,), (3, 3, 4, 8), ()]
RANK_2 = Reduction(rank=2)


@pytest.fixture(autouse=True, scope="module")
def _compiled_quickly() -> Iterator[None]:
    """What is computed counts, not how fast."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def _zeros(reduction: Reduction, replicas: int, shapes: Sequence[tuple[int, ...]], dtype: Any = "float32") -> Any:
    kept = error_feedback.residual_shapes(reduction, [jnp.zeros(shape, dtype) for shape in shapes])
    return jax.tree.map(lambda s: np.zeros((replicas, *s.shape), s.dtype), kept)


def _summing(replicas: int, reduction: Reduction) -> Callable[..., Any]:
    return on_each(
        replicas,
        lambda values, kept: error_feedback.sum_compressed(reduction, values, Residuals(*kept), "replica", replicas),
    )


@st.composite
def _reductions(draw: st.DrawFn) -> Reduction:
    wire: Any = draw(st.sampled_from([None, "bfloat16"]))
    algorithm: Any = draw(st.sampled_from(["all_reduce", "one_device"] if wire else ["ring", "hierarchical"]))
    return Reduction(
        algorithm,
        packs=draw(st.sampled_from([0, 2])),
        wire=wire,
        rank=draw(st.integers(1, 3)),
        whole_steps=draw(st.sampled_from([0, 2])),
    )


@pytest.mark.slow
@settings(max_examples=3)
@given(replicas=st.integers(2, 4), reduction=_reductions(), seed=st.integers(0, 99), scale=st.integers(-60, 40))
def test_what_is_applied_and_the_residuals_are_the_true_sums(
    replicas: int, reduction: Reduction, seed: int, scale: int
) -> None:
    rng = np.random.default_rng(seed)
    summing, kept = _summing(replicas, reduction), _zeros(reduction, replicas, SHAPES)
    applied, true = ([np.zeros(shape) for shape in SHAPES] for _ in range(2))
    for _ in range(6):
        values = [(rng.normal(size=(replicas, *shape)) * 2.0**scale).astype("float32") for shape in SHAPES]
        found, kept = summing(values, kept)
        for array in (*found, *kept.common):
            np.testing.assert_array_equal(array, np.broadcast_to(array[:1], array.shape))
        for i, value in enumerate(values):
            applied[i] = applied[i] + np.asarray(found[i])[0].astype(float)
            true[i] = true[i] + value.astype(float).sum(0)
    own = [np.asarray(r, float).sum(0) for r in kept.own]
    compressed = [i for i, s in enumerate(SHAPES) if reduction.wire or powersgd.gains(jnp.zeros(s), reduction.rank)]
    missing = dict(zip(compressed, own, strict=True))
    for i, (total, exact) in enumerate(zip(applied, true, strict=True)):
        np.testing.assert_allclose(total + missing.get(i, 0), exact, rtol=0, atol=1e-4 * 2.0**scale)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [1, 2])
def test_a_sum_of_that_rank_is_found_and_what_differs_is_kept(rank: int) -> None:
    rng = np.random.default_rng(0)
    summing, kept = _summing(2, Reduction(rank=rank)), _zeros(Reduction(rank=rank), 2, [(30, 20)])
    value = (rng.normal(size=(2, 30, 1)) * rng.normal(size=(1, 20))).astype("float32")
    for step in (1, 2):
        (found,), kept = summing([value], kept)
        np.testing.assert_allclose(found[0], value.sum(0), atol=1e-5)
        np.testing.assert_allclose(kept.own[0], step * (value - value.mean(0)), atol=1e-5)


@pytest.mark.slow
def test_the_same_gradient_again_and_again_is_applied_in_the_end() -> None:
    """Of full rank, so that one step never says it all; on average over the steps, everything has been."""
    value = np.random.default_rng(0).normal(size=(2, 24, 16)).astype("float32")
    summing, kept, total = _summing(2, RANK_2), _zeros(RANK_2, 2, [(24, 16)]), np.zeros((24, 16))
    for _ in range(200):
        (found,), kept = summing([value], kept)
        total += np.asarray(found)[0]
    np.testing.assert_allclose(total / 200, value.sum(0), atol=0.4)
    (first,), _ = summing([value], _zeros(RANK_2, 2, [(24, 16)]))
    assert np.abs(first[0] - value.sum(0)).max() > 1


@pytest.mark.slow
def test_directions_that_have_vanished_come_back() -> None:
    summing, kept = _summing(2, RANK_2), _zeros(RANK_2, 2, [(24, 16)])
    rng = np.random.default_rng(0)
    nothing = np.zeros((2, 24, 16), "float32")
    flat = np.broadcast_to(rng.normal(size=(24, 1)) * rng.normal(size=16), (2, 24, 16)).astype("float32")
    for value in (nothing, flat, nothing, nothing):
        (found,), kept = summing([value], kept)
    np.testing.assert_allclose(found, 0, atol=1e-5)
    full = (rng.normal(size=(24, 2)) @ rng.normal(size=(2, 16))).astype("float32")
    for _ in range(2):
        (found,), kept = summing([np.stack([full, full])], kept)
    np.testing.assert_allclose(found[0] + kept.own[0].sum(0), 2 * full, atol=2e-2)


@pytest.mark.slow
def test_a_step_that_has_overflowed_is_not_finite_and_leaves_nothing() -> None:
    rng = np.random.default_rng(0)
    summing, kept = _summing(2, RANK_2), _zeros(RANK_2, 2, [(24, 16), (32, 8)])
    values = [rng.normal(size=(2, *shape)).astype("float32") for shape in ((24, 16), (32, 8))]
    _, kept = summing(values, kept)
    for bad in (np.nan, np.inf, 3e38):
        worse = [values[0].copy(), values[1]]
        worse[0][1, :3] = bad
        found, after = summing(worse, kept)
        assert not np.isfinite(np.asarray(found[0])).all(axis=(1, 2)).any()
        jax.tree.map(np.testing.assert_array_equal, after, kept)


@pytest.mark.slow
@settings(max_examples=3)
@example(seed=0, nearness=[1e-7, 0.0, 1.0], rows=(40, 4, 64))
@given(
    seed=st.integers(0, 99),
    nearness=st.lists(st.sampled_from([0.0, 1e-9, 1e-5, 1e-3, 1.0]), min_size=3, max_size=3),
    rows=st.sampled_from([(300, 60, 5), (4, 1, 16)]),
)
def test_columns_become_orthonormal_however_near_they_are(
    seed: int, nearness: list[float], rows: tuple[int, int, int]
) -> None:
    rng = np.random.default_rng(seed)
    matrices = [
        rng.normal(size=(n, 1)) + near * rng.normal(size=(n, 4)) for n, near in zip(rows, nearness, strict=True)
    ]
    scaled = [(m * 10.0 ** rng.integers(-30, 30, 4)).astype("float32") for m in matrices]
    for found, near in zip(jax.jit(powersgd.orthonormal)(scaled), nearness, strict=True):
        basis = np.asarray(found, float)
        product = basis.T @ basis
        lengths = np.diag(product)
        # Columns that say nothing new are zeros.
        np.testing.assert_allclose(lengths * (1 - lengths), 0, atol=1e-5)
        np.testing.assert_allclose(product - np.diag(lengths), 0, atol=2e-6)
        assert lengths[0] > 0.5 and (near < 1e-3 or len(found) < 4 or lengths.min() > 0.5)


def test_where_a_gradient_is_cut_does_not_depend_on_the_layout() -> None:
    shapes = [(3, 3, 64, 128), (128, 64, 3, 3), (256, 8, 32), (8, 32, 256), (1000, 10)]
    assert [sum(powersgd._sides(s)) for s in shapes] == [704, 704, 512, 512, 1010]


def test_what_gains() -> None:
    def gaining(shape: tuple[int, ...], rank: int, dtype: str = "float32") -> bool:
        return powersgd.gains(jnp.zeros(shape, dtype), rank)

    assert gaining((8, 8), 2) and not gaining((8, 8), 3)
    assert gaining((8, 8), 1, "bfloat16") and not gaining((8, 8), 2, "bfloat16")
    assert not any(gaining(shape, 1) for shape in ((), (100,), (0, 100), (1, 100), (3, 3)))
    assert not gaining((100, 100), 1, "int32") and not gaining((100, 100), 1, "complex64")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_other_types_come_back_as_they_were(dtype: str) -> None:
    with jax.enable_x64(dtype == "float64"):
        rng = np.random.default_rng(0)
        value = jnp.asarray(rng.normal(size=(2, 40, 1)) * rng.normal(size=30), dtype)
        reduction = Reduction(rank=1)
        kept = _zeros(reduction, 2, [(40, 30)], dtype)
        (found,), after = _summing(2, reduction)([value], kept)
        assert found.dtype == dtype
        assert after.own[0].dtype == after.common[0].dtype == ("float64" if dtype == "float64" else "float32")
        # The sum is not quite of rank 1 where its summands were rounded, and is rounded itself; that is kept.
        total = np.asarray(found[0], float) + np.asarray(after.own[0], float).sum(0)
        np.testing.assert_allclose(total, np.asarray(value, float).sum(0), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("replicas", "rank"), [(2, 1), (4, 4)])
def test_only_factors_and_what_is_small_travel(replicas: int, rank: int) -> None:
    shapes = [(784, 128), (128,), (3, 3, 16, 64)]
    reduction = Reduction(rank=rank)
    values = [np.ones((replicas, *shape), "float32") for shape in shapes]
    program = _summing(replicas, reduction).lower(values, _zeros(reduction, replicas, shapes))
    numbers = rank * (784 + 128) + 128 + rank * (144 + 64)
    assert traffic(program.compile().as_text(), replicas) == 2 * 4 * numbers * (replicas - 1) / replicas
    assert numbers < sum(map(math.prod, shapes)) / 20


@pytest.mark.slow
def test_at_first_gradients_may_travel_whole() -> None:
    reduction = Reduction(rank=1, whole_steps=2)
    summing, kept = _summing(2, reduction), _zeros(reduction, 2, [(24, 16)])
    value = np.random.default_rng(0).normal(size=(2, 24, 16)).astype("float32")
    text = summing.lower([value], kept).compile().as_text()
    assert (traffic(text, 2, min), traffic(text, 2, max)) == (4 * (24 + 16), 4 * 24 * 16)
    for step in range(4):
        (found,), kept = summing([value], kept)
        difference = np.abs(np.asarray(found)[0] - value.sum(0)).max()
        assert difference == 0 if step < 2 else difference > 0.5
        assert np.asarray(kept.common[0])[0] == min(step + 1, 2)
