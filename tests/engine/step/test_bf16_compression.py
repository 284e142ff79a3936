"""Gradients that travel in bfloat16: the bytes, the sums, and what rounding takes away and gives back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.traffic.hlo import traffic
from lockstep._engine.step import bf16_compression
from lockstep._engine.step.reduction import Reduction
from tests.engine.step.collectives import on_each

SHAPES = [(5,), (), (3, 4), (17,)]
PLAIN = Reduction()
# Half the distance between 1 and the next number of bfloat16.
HALF = 2.0**-8


def _summing(replicas: int, reduction: Reduction = PLAIN) -> Callable[..., Any]:
    return on_each(
        replicas, lambda values, kept: bf16_compression.sum_narrowed(reduction, values, kept, "replica", replicas)
    )


@st.composite
def _reductions(draw: st.DrawFn) -> Reduction:
    return Reduction(
        draw(st.sampled_from(["all_reduce", "one_device"])),
        packs=draw(st.sampled_from([0, 2])),
        pack_bytes=draw(st.sampled_from([0, 30])),
    )


@pytest.mark.slow
@settings(max_examples=8)
@given(replicas=st.integers(2, 4), reduction=_reductions(), seed=st.integers(0, 99), scale=st.integers(-40, 40))
def test_what_is_applied_and_the_residuals_are_the_true_sums(
    replicas: int, reduction: Reduction, seed: int, scale: int
) -> None:
    rng = np.random.default_rng(seed)
    summing = _summing(replicas, reduction)
    kept: Any = [np.zeros((replicas, *shape), "float32") for shape in SHAPES]
    applied, true = ([np.zeros(shape) for shape in SHAPES] for _ in range(2))
    largest = 0.0
    for _ in range(6):
        values = [(rng.normal(size=r.shape) * 2.0**scale).astype("float32") for r in kept]
        found, kept = summing(values, kept)
        largest = max(largest, *(float(np.abs(v).max()) for v in values))
        for i, value in enumerate(values):
            total = np.asarray(found[i])
            np.testing.assert_array_equal(total, np.broadcast_to(total[:1], total.shape))
            applied[i] = applied[i] + total[0].astype(float)
            true[i] = true[i] + value.astype(float).sum(0)
    for total, exact, residual in zip(applied, true, kept, strict=True):
        missing = np.asarray(residual, float).sum(0)
        np.testing.assert_allclose(total + missing, exact, rtol=0, atol=1e-5 * largest)
        # Never more than one rounding of each contribution, and one of the sum, however many steps there were.
        assert np.abs(missing).max() <= 4 * HALF * replicas * largest


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_errors_do_not_add_up(replicas: int) -> None:
    """1 + 1/512 becomes 1: without residuals, 64 steps would be 64 times as much too small."""
    value = [np.full((replicas, 3), 1 + 2.0**-9, "float32")]
    kept: Any = [np.zeros((replicas, 3), "float32")]
    summing = _summing(replicas)
    applied = np.zeros(3)
    for _ in range(64):
        found, kept = summing(value, kept)
        applied += np.asarray(found[0])[0]
    rounded, exact = 64 * replicas, 64 * replicas * (1 + 2.0**-9)
    assert np.abs(applied - exact).max() < (exact - rounded) / 10


def test_what_has_overflkept_is_not_kept() -> None:
    largest = np.float32(3.4e38)  # Rounds to infinity.
    value = np.asarray([[np.nan, np.inf, largest, 1 + 2.0**-9]] * 2, "float32")
    before = np.full((2, 4), 2.0**-20, "float32")
    (total,), (after,) = _summing(2)([value], [before])
    np.testing.assert_array_equal(np.isfinite(np.asarray(total)[0]), [False, False, False, True])
    np.testing.assert_array_equal(np.asarray(after)[0, :3], before[0, :3])
    assert np.asarray(after)[0, 3] == 2.0**-9 + 2.0**-20


def test_a_sum_that_overflows_is_not_kept() -> None:
    value = np.full((4, 8), 1.5e38, "float32")
    (total,), (after,) = _summing(4)([value], [np.zeros((4, 8), "float32")])
    assert not np.isfinite(np.asarray(total)).any()
    assert np.isfinite(np.asarray(after)).all()


def test_which_values_get_shorter() -> None:
    shorter = {
        n for n in ("float32", "float16", "bfloat16", "int32", "complex64") if bf16_compression.narrows(jnp.zeros(2, n))
    }
    assert shorter == {"float32"}
    assert not bf16_compression.narrows(jnp.zeros((0, 3)))


@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_half_the_bytes_travel(replicas: int) -> None:
    values = [np.ones((replicas, n), "float32") for n in (1200, 240, 12000)]
    wide = on_each(replicas, lambda values: PLAIN.sum(values, "replica", replicas))
    programs = [wide.lower(values), _summing(replicas).lower(values, values)]
    before, after = (traffic(p.compile().as_text(), replicas) for p in programs)
    assert before == 2 * 4 * 13440 * (replicas - 1) / replicas
    assert after == before / 2


def test_algorithms_that_add_up_in_order_collect_everything_once() -> None:
    values = [np.ones((4, 100), "float32")]
    text = _summing(4, Reduction("one_device")).lower(values, values).compile().as_text()
    assert traffic(text, 4) == 2 * 100 * 4 * 3 / 4
    assert "all-to-all" not in text


@given(sizes=st.lists(st.integers(0, 100), min_size=1, max_size=9), limit=st.sampled_from([0, 64]))
def test_packs_hold_everything_once(sizes: list[int], limit: int) -> None:
    packs = Reduction(pack_bytes=limit).wire_packs(sizes)
    assert sorted(i for pack in packs for i in pack) == list(range(len(sizes)))
    if not limit:
        assert packs == [list(range(len(sizes)))[::-1]]
