"""A synchronous step on N workers.

    step = slowest of N workers' compute, and what of the all-reduce does not hide behind it

* Compute: the expected largest of N step times drawn from measured ones, or from a normal distribution that is assumed.
* All-reduce: the cheaper of a ring, `2 (N - 1) a + 2 (N - 1) / N B / b`, and a pair of trees, `2 log2(N) a + 2 B / b`,
  for B bytes, latency a and bandwidth b in each direction.
* Overlap: gradients leave in buckets. The k-th of K is ready when the backward pass (two thirds of a step) has come so
  far, and starts when the one before has arrived. Without overlap all leave at the end, as one.

What it leaves out: switches that are shared, all that is between workers of one machine, input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

# The part of a step that the backward pass takes: twice the forward pass'.
BACKWARD = 2 / 3
# Gradients leave in buckets of the best of these sizes.
BUCKETS = (2**20, 4 * 2**20, 25 * 2**20, 100 * 2**20)


@dataclass(frozen=True)
class Network:
    """What lies between workers.

    Attributes:
        name: As tables show it.
        latency: Seconds of a hop, software included.
        bandwidth: Bytes/s in each direction.
    """

    name: str
    latency: float
    bandwidth: float


@dataclass(frozen=True)
class Workload:
    """What a worker computes.

    Attributes:
        name: As tables show it.
        step: Seconds of a step on one worker.
        parameters: How many there are.
        bytes_each: Bytes of a gradient's element on the wire.
        deviation: Standard deviation of a step's seconds over workers, as a part of the mean.
        source: Where `step` comes from.
    """

    name: str
    step: float
    parameters: int
    bytes_each: int = 4
    deviation: float = 0.01
    source: str = ""

    @property
    def bytes(self) -> int:
        """Bytes of all gradients."""
        return self.parameters * self.bytes_each


def all_reduce(size: float, workers: int, network: Network) -> float:
    """Seconds to add `size` bytes over the workers."""
    if workers == 1:
        return 0.0
    ring = 2 * (workers - 1) * network.latency + 2 * (workers - 1) / workers * size / network.bandwidth
    trees = 2 * math.ceil(math.log2(workers)) * network.latency + 2 * size / network.bandwidth
    return min(ring, trees)


def slowest_of_normal(workers: int, deviation: float) -> float:
    """Expected largest of N normal step times of mean 1 (Blom's approximation)."""
    return 1 + deviation * NormalDist().inv_cdf((workers - 0.375) / (workers + 0.25)) if workers > 1 else 1.0


def slowest_of_samples(samples: Sequence[float], workers: int) -> float:
    """Expected largest of N draws from `samples`, over their mean.

    The i-th smallest of n is the largest of N draws with probability (i / n)^N - ((i - 1) / n)^N.
    """
    ordered, count = sorted(samples), len(samples)
    weights = (((i + 1) / count) ** workers - (i / count) ** workers for i in range(count))
    return sum(w * s for w, s in zip(weights, ordered, strict=True)) / fmean(samples)


def buckets(size: int, limit: int) -> list[float]:
    """Cuts `size` bytes into buckets of `limit` at most, of equal size."""
    count = max(1, math.ceil(size / limit))
    return [size / count] * count


def step_seconds(work: Workload, workers: int, network: Network, overlap: bool = True) -> float:
    """Seconds of a step on N workers."""
    compute = work.step * slowest_of_normal(workers, work.deviation)
    if not overlap:
        return compute + all_reduce(work.bytes, workers, network)
    return compute + min(exposed(compute, buckets(work.bytes, limit), workers, network) for limit in BUCKETS)


def exposed(compute: float, sizes: Sequence[float], workers: int, network: Network) -> float:
    """Seconds of communication that come on top of the `compute` seconds of a step, which it overlaps."""
    durations = [all_reduce(size, workers, network) for size in sizes]
    begins, done = compute * (1 - BACKWARD), 0.0
    for k, duration in enumerate(durations, 1):
        ready = begins + compute * BACKWARD * k / len(durations)
        done = max(ready, done) + duration
    return max(0.0, done - compute)


def efficiency(work: Workload, workers: int, network: Network, overlap: bool = True) -> float:
    """What N workers make of N times one worker's speed, each with the same batch as before (weak scaling)."""
    return work.step / step_seconds(work, workers, network, overlap)


def fit_line(sizes: Sequence[float], seconds: Sequence[float], workers: int) -> Network:
    """Returns latency and bandwidth with which `all_reduce`, as a ring, is nearest to measured all-reduces.

    Nearest in relative error: large sizes would decide alone otherwise.
    """
    rows = [(2 * (workers - 1) / t, 2 * (workers - 1) / workers * s / t) for s, t in zip(sizes, seconds, strict=True)]
    aa, ab, bb = (sum(x * y for x, y in pairs) for pairs in _products(rows))
    a1, b1 = sum(a for a, _ in rows), sum(b for _, b in rows)
    determinant = aa * bb - ab * ab
    latency, inverse = (a1 * bb - b1 * ab) / determinant, (aa * b1 - ab * a1) / determinant
    if latency <= 0 or inverse <= 0:  # One of the two cannot be told from these: the other explains it all.
        return Network("measured", 0.0, bb / b1) if latency <= 0 else Network("measured", a1 / aa, math.inf)
    return Network("measured", latency, 1 / inverse)


def _products(rows: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    return [[(a, a) for a, _ in rows], list(rows), [(b, b) for _, b in rows]]
