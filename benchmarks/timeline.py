"""Where does the step of 2 workers on one machine go? The tutorials' CNN (2.77 M parameters), 2 x 64 examples.

Each way to add gradients up is compiled into the same step, and the ways take turns in one run. For each: steps/s (the
best block, as other work on the machine only ever slows one down, and the median), the processor time that a worker
spends on a step, and, for shared memory, what its adding thread does: write, wait for the other worker, add.

    python benchmarks/timeline.py [--blocks 10] [--steps 15] [--settings default pinned ...] [--ways no shared ...]
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

WORKERS, BATCH = 2, 64
# The environment of a worker, and whether it is held on one core of its own.
SETTINGS: dict[str, tuple[dict[str, str], bool]] = {
    "default": ({}, False),
    "one-thread": ({"NPROC": "1"}, False),
    "pinned": ({"NPROC": "2"}, True),
    "pinned-one-thread": ({"NPROC": "1"}, True),
}
Sum = Callable[[list[Any]], list[Any]]


def _ways(replicas: int) -> dict[str, Sum]:
    """The ways to add values up over the replicas."""
    from jax import lax
    from jax.flatten_util import ravel_pytree

    from lockstep._engine.step import backends
    from lockstep._engine.step.reduction import Reduction
    from lockstep._engine.step.replicas import AXIS

    memory = backends.all_reduce(AXIS, replicas)
    assert memory, "the workers do not share memory"

    def one_buffer(values: list[Any]) -> list[Any]:
        flat, back = ravel_pytree(values)
        return back(lax.psum(flat, AXIS))

    return {
        "no communication": lambda values: [v * replicas for v in values],
        "Gloo, each value": lambda values: [lax.psum(v, AXIS) for v in values],
        "Gloo, one buffer": one_buffer,
        "shared, each value": lambda values: [memory.sum([v])[0] for v in values],
        "shared, one call": memory.sum,
        "shared, packs": lambda values: Reduction().sum(values, AXIS, replicas),
    }


def _model() -> Any:
    import keras

    keras.utils.set_random_seed(0)
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((28, 28)),
            layers.Reshape((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ]
    )


def _program(model: Any, replicas: Any, add_up: Sum) -> Any:
    """A step of SGD with loss and accuracy, all of it in one sum."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import PartitionSpec

    from lockstep._engine.step.replicas import AXIS

    def losses(weights: Any, images: Any, labels: Any) -> tuple[Any, Any]:
        logits, _ = model.stateless_call(weights, [], images, training=True)
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
        return -picked.sum() / (BATCH * replicas.count), (logits.argmax(1) == labels).sum().astype("float32")

    def step(state: Any, data: Any) -> Any:
        weights, metrics = state
        (loss, right), gradients = jax.value_and_grad(losses, has_aux=True)(weights, *data)
        *gradients, loss, right = add_up([*gradients, loss, right])
        return [w - 0.001 * g for w, g in zip(weights, gradients, strict=True)], [metrics[0] + loss, metrics[1] + right]

    whole, shares = PartitionSpec(), PartitionSpec(AXIS)
    run = jax.shard_map(step, mesh=replicas.mesh, in_specs=(whole, shares), out_specs=whole, check_vma=False)
    return jax.jit(run, donate_argnums=0, out_shardings=replicas.whole)


class _Clock:
    """What the adding thread does, in seconds, while a block runs."""

    def __init__(self) -> None:
        from lockstep._cpu.shared_memory.engine import Engine
        from lockstep._cpu.shared_memory.exchange import Exchange

        self._spent: dict[str, float] = {}
        self._watch(Engine, "_carry_out")
        for name in ("_write", "receive_leaders_call_id", "_receive_all"):
            self._watch(Exchange, name)

    def _watch(self, owner: type, name: str) -> None:
        inner = getattr(owner, name)

        def timed(*arguments: Any, **more: Any) -> Any:
            start = time.perf_counter()
            try:
                return inner(*arguments, **more)
            finally:
                self._spent[name] = self._spent.get(name, 0.0) + time.perf_counter() - start

        setattr(owner, name, timed)

    def take(self) -> dict[str, float]:
        """Returns the times since the last call."""
        spent, self._spent = self._spent, {}
        write, whole = spent.get("_write", 0.0), spent.get("_carry_out", 0.0)
        wait = spent.get("receive_leaders_call_id", 0.0) + spent.get("_receive_all", 0.0)
        return {"write": write, "wait": wait, "add": whole - write - wait}


class _Way:
    """One way to add up, with a state of its own."""

    def __init__(self, model: Any, strategy: Any, add_up: Sum) -> None:
        import numpy as np

        from lockstep._engine.step.placement import replicate

        replicas = strategy._replicas
        self._run = _program(model, replicas, add_up)
        place = lambda v: replicate(replicas, np.asarray(v))  # noqa: E731
        zeros = [np.zeros((), "float32") for _ in range(2)]
        self._state = ([place(v) for v in model.trainable_variables], [place(v) for v in zeros])
        self.blocks: list[dict[str, float]] = []

    def run(self, data: Any, steps: int) -> None:
        """Runs steps, at most 8 of them under way."""
        import jax

        under_way: list[Any] = []
        for _ in range(steps):
            self._state = self._run(self._state, data)
            # The state is donated to the next step; a copy of the counters is not.
            under_way.append(self._state[1][0] + 0)
            if len(under_way) > 8:
                jax.block_until_ready(under_way.pop(0))
        jax.block_until_ready(self._state)

    def measure(self, data: Any, steps: int, clock: _Clock) -> None:
        """Runs a block of steps and notes what it took, in seconds per step."""
        clock.take()
        wall, processor = time.perf_counter(), time.process_time()
        self.run(data, steps)
        block = {"wall": time.perf_counter() - wall, "processor": time.process_time() - processor, **clock.take()}
        self.blocks.append({name: seconds / steps for name, seconds in block.items()})


def _work(blocks: int, steps: int, wanted: list[str]) -> None:
    """A worker: prints its blocks as JSON."""
    if core := os.environ.get("TIMELINE_CORE"):
        os.sched_setaffinity(0, {int(core)})
    import numpy as np

    import lockstep as ls

    strategy = ls.distribute.MultiWorkerMirroredStrategy()
    from lockstep._engine.step.placement import place_batch

    rng = np.random.default_rng(0)
    count = BATCH * strategy.num_replicas_in_sync
    batch = rng.random((count, 28, 28), "float32"), rng.integers(0, 10, count).astype("int32")
    data = place_batch(strategy._replicas, batch).data
    model, clock = _model(), _Clock()
    chosen = {n: a for n, a in _ways(strategy.num_replicas_in_sync).items() if any(w in n for w in wanted)}
    ways = {n: _Way(model, strategy, add_up) for n, add_up in chosen.items()}
    for way in ways.values():
        way.run(data, 3)
    for _ in range(blocks):
        for name, way in ways.items():
            way.measure(data, max(2, steps // 5) if name == "Gloo, one buffer" else steps, clock)
    print(json.dumps({name: way.blocks for name, way in ways.items()}), flush=True)


def _start(setting: str, arguments: list[str]) -> list[dict[str, list[dict[str, float]]]]:
    """Runs the workers; returns the blocks of each."""
    more, is_pinned = SETTINGS[setting]
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(WORKERS)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    workers: list[subprocess.Popen[str]] = []
    for index in range(WORKERS):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        env = {k: v for k, v in os.environ.items() if not k.startswith(("XLA_", "JAX_", "NPROC"))}
        env |= {"TF_CONFIG": json.dumps(task), **more}
        if is_pinned:
            env["TIMELINE_CORE"] = str(index % (os.cpu_count() or 1))
        command = [sys.executable, __file__, "--worker", *arguments]
        workers.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True))
    try:
        printed = [w.communicate()[0] for w in workers]
    finally:
        for w in workers:
            w.kill()
    if any(w.returncode for w in workers):
        raise SystemExit(f"{setting}: a worker has failed")
    return [json.loads(p.splitlines()[-1]) for p in printed]


def _show(setting: str, found: list[dict[str, list[dict[str, float]]]]) -> None:
    print(f"{setting}:  steps/s best, median | of the ceiling | per worker, ms: processor, write, wait, add")
    ceiling = 0.0
    for name, blocks in found[0].items():
        best = max(1 / b["wall"] for b in blocks)
        median = statistics.median(1 / b["wall"] for b in blocks)
        ceiling = ceiling or best
        parts = [
            [statistics.median(b[part] for b in worker[name]) * 1e3 for part in ("processor", "write", "wait", "add")]
            for worker in found
        ]
        shown = "; ".join(" ".join(f"{ms:6.2f}" for ms in worker) for worker in parts)
        print(f"  {name:20} {best:6.1f} {median:6.1f} | {best / ceiling:5.0%} | {shown}", flush=True)


def main() -> None:
    """Runs each setting and prints its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--ways", nargs="+", default=[""], help="only those whose names contain one of these")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        _work(options.blocks, options.steps, options.ways)
        return
    for setting in options.settings:
        arguments = ["--blocks", str(options.blocks), "--steps", str(options.steps), "--ways", *options.ways]
        _show(setting, _start(setting, arguments))


if __name__ == "__main__":
    main()
