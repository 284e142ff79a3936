"""What the processes of a test cluster add up."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

import lockstep as ls
from lockstep._cpu.shared_memory import all_reduce
from lockstep._engine.step import backends, bf16_compression
from lockstep._engine.step.reduction import Reduction
from lockstep._engine.step.replicas import AXIS

Strategy = ls.distribute.Strategy
# More than three rounds of shared memory, and a size that no number of processes divides.
MANY = 500_009


def _program(strategy: Strategy, step: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles what each replica does with its number, and with arguments that are whole everywhere."""
    replicas = strategy._replicas

    def numbered(*arguments: Any) -> Any:
        backends.begin_program()
        return jax.tree.map(lambda v: v[None], step(lax.axis_index(AXIS), *arguments))

    whole, divided = PartitionSpec(), PartitionSpec(AXIS)
    run = jax.shard_map(numbered, mesh=replicas.mesh, in_specs=whole, out_specs=divided, check_vma=False)
    return jax.jit(run)


def _sum(strategy: Strategy, values: list[jax.Array], **packs: int) -> list[jax.Array]:
    return Reduction(**packs).sum(values, AXIS, strategy.num_replicas_in_sync)


def _here(value: jax.Array) -> np.ndarray:
    """What the replicas of this process have."""
    return np.concatenate([np.asarray(s.data) for s in value.addressable_shards])


@contextmanager
def _without_shared_memory() -> Iterator[None]:
    found, backends._all_reduce = backends._all_reduce, None
    try:
        yield
    finally:
        backends._all_reduce = found


def is_on(strategy: Strategy) -> dict[str, Any]:
    """Whether programs add up through shared memory."""
    return {"on": backends.all_reduce(AXIS, strategy.num_replicas_in_sync) is not None}


def every_type(strategy: Strategy) -> dict[str, Any]:
    """Sums of every type that programs use, here and by XLA."""
    rng = np.random.default_rng(0)
    names = ["float32", "bfloat16", "float16", "int32", "int8", "uint8", "uint32", "int16", "complex64", "bool"]
    whole = {n: rng.integers(0, 5, (strategy.num_replicas_in_sync, 3, 5)).astype(jnp.dtype(n)) for n in names}
    values = {**whole, "scalar": np.arange(9, dtype="float32"), "empty": np.zeros((9, 0), "float32")}

    def step(replica: Any, values: Any) -> Any:
        return dict(zip(values, _sum(strategy, [v[replica] for v in values.values()]), strict=True))

    found = _program(strategy, step)(values)
    with _without_shared_memory():
        expected = _program(strategy, step)(values)
    results = {}
    for name in values:
        assert found[name].dtype == expected[name].dtype, name
        results[f"found {name}"] = _here(found[name]).astype("complex64")
        results[f"expected {name}"] = _here(expected[name]).astype("complex64")
    return results


def large(strategy: Strategy, pack_bytes: int) -> dict[str, Any]:
    """Sums of values that take several rounds; random, so that the order of the terms shows."""
    count = strategy.num_replicas_in_sync
    rng = np.random.default_rng(1)
    values = [rng.normal(size=(count, n)).astype("float32") for n in (MANY, 7, 1, 300)]

    def step(replica: Any, values: Any) -> Any:
        return _sum(strategy, [v[replica] for v in values], pack_bytes=pack_bytes)

    found = [_here(v) for v in _program(strategy, step)(values)]
    error = max(float(np.abs(f - v.sum(0)).max()) for f, v in zip(found, values, strict=True))
    return {"error": error, **{str(i): f for i, f in enumerate(found)}}


def narrow(strategy: Strategy) -> dict[str, Any]:
    """Sums of gradients that travel in bfloat16, and how many bytes this process writes for them and for others."""
    count = strategy.num_replicas_in_sync
    rng = np.random.default_rng(1)
    values = [rng.normal(size=(count, n)).astype("float32") for n in (MANY, 7, 300)]

    def narrowed(replica: Any, values: Any) -> Any:
        own = [v[replica] for v in values]
        return bf16_compression.sum_narrowed(
            Reduction(wire="bfloat16"), own, [jnp.zeros_like(v) for v in own], AXIS, count
        )

    def bytes_of(step: Callable[..., Any]) -> tuple[Any, int]:
        before = all_reduce.bytes_written()
        found = jax.block_until_ready(_program(strategy, step)(values))
        return found, all_reduce.bytes_written() - before

    (sums, kept), narrow = bytes_of(narrowed)
    _, wide = bytes_of(lambda replica, values: _sum(strategy, [v[replica] for v in values]))
    error = max(float(np.abs(_here(s) - v.sum(0)).max()) for s, v in zip(sums, values, strict=True))
    mine = [i for i, d in enumerate(strategy._replicas.devices) if d.process_index == jax.process_index()]
    # Until sums are rounded themselves, all that is missing of a sum is the summands' residuals.
    sent = [v.astype(jnp.bfloat16).astype("float32") for v in values]
    residuals = max(float(np.abs(_here(o) - (v - s)[mine]).max()) for o, v, s in zip(kept, values, sent, strict=True))
    exact = max(float(np.abs(_here(s) - w.sum(0)).max()) for s, w in zip(sums, sent, strict=True))
    found = {str(i): _here(s) for i, s in enumerate(sums)}
    return {"error": error, "residuals": residuals, "exact": exact, "narrow": narrow, "wide": wide, **found}


def inside_loops(strategy: Strategy) -> dict[str, Any]:
    """Sums in a `scan` whose body has a `while` loop and a `cond`."""

    def more(carry: tuple[Any, Any]) -> tuple[Any, Any]:
        number, value = carry
        (total,) = _sum(strategy, [value])
        return number + 1, total / 2

    def body(value: Any, replica_twice: Any) -> tuple[Any, Any]:
        _, value = lax.while_loop(lambda c: c[0] < 3, more, (0, value + replica_twice))
        (twice,) = lax.cond(value[0] > 0, lambda v: _sum(strategy, [v]), lambda v: [v], value)
        return twice - value, value

    def step(replica: Any) -> Any:
        start = jnp.ones(5) * replica.astype("float32")
        return lax.scan(body, start, jnp.arange(20.0) * replica.astype("float32") / 1e3)

    found = _program(strategy, step)()
    with _without_shared_memory():
        expected = _program(strategy, step)()
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return {"error": max(float(np.abs(_here(f) - _here(e)).max()) for f, e in pairs)}


def many_in_flight(strategy: Strategy) -> dict[str, Any]:
    """Independent sums of one program, and of another with the same places, all dispatched before any is looked at."""

    def step(replica: Any, start: Any) -> Any:
        mine = start + replica.astype("float32")
        return [_sum(strategy, [mine * k])[0] for k in range(1, 9)]

    program = _program(strategy, step)
    other = _program(strategy, lambda replica, start: [v + 1 for v in step(replica, start)])
    count = strategy.num_replicas_in_sync
    replicas = sum(range(count))
    found = [(i, (other if i % 3 == 0 else program)(np.full(100, float(i), "float32"))) for i in range(30)]
    for i, values in found:
        for k, value in enumerate(values, 1):
            expected = k * (count * i + replicas) + (i % 3 == 0)
            np.testing.assert_array_equal(_here(value), np.full((len(value.addressable_shards), 100), expected))
    return {"done": True}


def unused(strategy: Strategy) -> dict[str, Any]:
    """A sum that the program does not need is still carried out by all, and under `vmap`, too."""

    def step(replica: Any, value: Any) -> Any:
        _sum(strategy, [value])
        return jax.vmap(lambda v: _sum(strategy, [v * (replica + 1)])[0])(value)

    value = np.arange(12.0, dtype="float32").reshape(3, 4)
    found = _here(_program(strategy, step)(value))
    count = strategy.num_replicas_in_sync
    return {"found": found, "expected": np.broadcast_to(value * (count * (count + 1) // 2), found.shape)}


def dies(strategy: Strategy, how: str) -> dict[str, Any]:
    """The last process goes in the middle of sums; the others report what they are told."""
    runtime = strategy._replicas.runtime
    is_last = runtime.process == len(runtime.tasks) - 1
    program = _program(strategy, lambda replica, value: _sum(strategy, [value])[0])
    value: Any = np.ones(MANY, "float32")
    try:
        with runtime.collective_region("a test"):
            for number in range(1000):
                if number == 3 and is_last and how == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                if number == 3 and is_last and how == "raises":
                    raise ValueError("disk gone")
                jax.block_until_ready(program(value))
    except Exception as error:
        return {"type": type(error).__name__, "text": str(error)}
    sys.exit("nothing has ended the sums")
