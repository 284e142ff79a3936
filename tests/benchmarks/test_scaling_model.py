from __future__ import annotations

import math
import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.scale.model import (
    BACKWARD,
    Network,
    Workload,
    all_reduce,
    buckets,
    efficiency,
    exposed,
    fit_line,
    slowest_of_normal,
    slowest_of_samples,
    step_seconds,
)

FAST = Network("fast", 5e-6, 10e9)
WORK = Workload("work", 0.1, 25_000_000)


def test_an_all_reduce_of_two_workers_by_hand() -> None:
    assert all_reduce(10e9, 2, FAST) == pytest.approx(2 * 5e-6 + 1.0)
    assert all_reduce(10e9, 1, FAST) == 0


def test_small_messages_of_many_workers_take_a_tree() -> None:
    assert all_reduce(4, 1024, FAST) == pytest.approx(20 * 5e-6, rel=1e-3)


@given(st.floats(1, 1e10), st.integers(1, 1023))
def test_more_workers_or_bytes_never_take_less(size: float, workers: int) -> None:
    assert all_reduce(size, workers + 1, FAST) >= all_reduce(size, workers, FAST)
    assert all_reduce(2 * size, workers, FAST) >= all_reduce(size, workers, FAST)


def test_the_slowest_of_samples_is_what_drawing_gives() -> None:
    generator = random.Random(0)
    samples = [generator.gauss(10, 1) for _ in range(300)]
    for workers in (1, 2, 8):
        drawn = fmean(max(generator.choices(samples, k=workers)) for _ in range(20_000)) / fmean(samples)
        assert slowest_of_samples(samples, workers) == pytest.approx(drawn, rel=5e-3)


def test_the_slowest_of_normal_times_is_what_drawing_gives() -> None:
    generator = random.Random(0)
    for workers in (2, 16):
        drawn = fmean(max(generator.gauss(1, 0.05) for _ in range(workers)) for _ in range(20_000))
        assert slowest_of_normal(workers, 0.05) == pytest.approx(drawn, rel=2e-3)
    assert slowest_of_normal(1, 0.05) == 1


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=50), st.integers(1, 1024))
def test_the_slowest_is_between_the_mean_and_the_largest(samples: list[float], workers: int) -> None:
    found = slowest_of_samples(samples, workers) * fmean(samples)
    assert fmean(samples) * (1 - 1e-9) <= found <= max(samples) * (1 + 1e-9)


@given(st.integers(1, 10**9), st.integers(10**6, 10**8))
def test_buckets_hold_everything_and_no_more_than_they_may(size: int, limit: int) -> None:
    found = buckets(size, limit)
    assert math.isclose(sum(found), size)
    assert max(found) <= limit * (1 + 1e-9)


def test_overlap_hides_all_but_the_last_bucket() -> None:
    sizes = buckets(100_000_000, 10_000_000)
    last = all_reduce(10_000_000, 8, FAST)
    assert exposed(1.0, sizes, 8, FAST) == pytest.approx(last)


def test_communication_that_is_longer_than_the_backward_pass_shows() -> None:
    whole = all_reduce(1e9, 8, FAST)
    assert exposed(0.03, [1e9 / 10] * 10, 8, FAST) == pytest.approx(
        whole + 9 * 2 * 7 * 5e-6 + 0.03 * BACKWARD / 10 - 0.03 * BACKWARD, rel=1e-3
    )


@given(st.integers(1, 1024), st.booleans())
def test_efficiency_is_a_part_and_overlap_does_not_hurt(workers: int, overlap: bool) -> None:
    assert 0 < efficiency(WORK, workers, FAST, overlap) <= 1
    assert efficiency(WORK, workers, FAST) >= efficiency(WORK, workers, FAST, overlap=False) - 1e-9
    assert step_seconds(WORK, 1, FAST) == WORK.step


@given(st.floats(1e-6, 1e-3), st.floats(1e8, 1e11), st.sampled_from([2, 4, 8]))
def test_the_fit_finds_the_constants_again(latency: float, bandwidth: float, workers: int) -> None:
    truth = Network("truth", latency, bandwidth)
    sizes = [2.0**i for i in range(12, 27, 2)]
    seconds = [2 * (workers - 1) * latency + 2 * (workers - 1) / workers * s / bandwidth for s in sizes]
    found = fit_line(sizes, seconds, workers)
    assert found.latency == pytest.approx(truth.latency, rel=1e-3)
    assert found.bandwidth == pytest.approx(truth.bandwidth, rel=1e-3)


def test_a_fit_to_times_that_no_line_explains_has_no_negative_constants() -> None:
    found = fit_line([1000.0, 1_000_000.0], [1e-3, 1e-4], 2)
    assert found.latency >= 0
    assert found.bandwidth > 0
