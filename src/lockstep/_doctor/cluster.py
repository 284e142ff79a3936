"""Test of a whole cluster: all tasks arrive, add numbers, compare clocks, and share a checkpoint.

Every task runs it with its own TF_CONFIG. It takes some seconds, two minutes at most: each wait has a limit, and ends
with the names of the tasks that are missing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep._doctor.finding import Finding, error, note, ok, size, warning
from lockstep.errors import LockstepError

if TYPE_CHECKING:
    import numpy as np

    from lockstep._engine.runtime.runtime import Runtime
    from lockstep.distribute import MultiWorkerMirroredStrategy

# Of the two minutes: for all to be started, and for one to be late for a call.
_JOIN_SECONDS = 60.0
_PEER_SECONDS = 30.0
# A model of 16 million float32 weights; and less, for what a sum costs whatever its size.
_BYTES = (4, 1 << 20, 1 << 26)
_ROUNDS = 5
_SMALL_ROUNDS = 50
_CHECKPOINT_BYTES = 1 << 25
_CLOCK_SECONDS = 1.0
_JOIN, _NAME = "LOCKSTEP_JOIN_TIMEOUT", ".lockstep-doctor"
# Beneath these the network, not the devices, decides how fast a step is.
_SLOW_BYTES_PER_SECOND = 50e6


def examine(shared: Path | None) -> tuple[bool, list[Finding]]:
    """Runs the test as this process' task; returns whether this task reports, and what was found."""
    findings: list[Finding] = []
    reports = True
    try:
        strategy = _join(findings)
        if strategy is None:
            return True, findings
        reports = strategy.is_chief
        runtime = _runtime(strategy)
        for step in (_clocks, _sums):
            findings += step(strategy, runtime)
        findings += _checkpoint(runtime, shared)
    except LockstepError as problem:
        # Each task prints its own: which task is missing, or different, is in the message.
        findings.append(
            error("cluster test", str(problem), "Start or correct what the message names, then run it again.")
        )
        return True, findings
    return reports, findings


def _join(findings: list[Finding]) -> MultiWorkerMirroredStrategy | None:
    """Joins the cluster; returns nothing for a process that is alone."""
    from lockstep.cluster_resolver.internal import default_resolver, training_tasks
    from lockstep.distribute import MultiWorkerMirroredStrategy
    from lockstep.distribute.experimental import CommunicationOptions

    resolver = default_resolver()
    tasks = training_tasks(resolver.cluster_spec())
    if len(tasks) < 2:
        advice = "Set TF_CONFIG in each task; or on one machine: lockstep run --workers 2 -m lockstep doctor --cluster"
        findings.append(error("cluster test", "No cluster of two tasks or more is described", advice))
        return None
    if resolver.task not in tasks:
        text = f"{resolver.task} takes no part in the sums of a cluster: nothing to test here"
        findings.append(ok("cluster test", text))
        return None
    # Before the strategy reads it; an hour in the user's environment is meant, and stays.
    os.environ.setdefault(_JOIN, f"{_JOIN_SECONDS:g}")
    began = time.monotonic()
    options = CommunicationOptions(timeout_seconds=_PEER_SECONDS)
    strategy = MultiWorkerMirroredStrategy(cluster_resolver=resolver, communication_options=options)
    waited = _runtime(strategy).all_gather_object("arrival", time.monotonic() - began)
    # Who came last has waited least.
    last = min(range(len(waited)), key=lambda i: waited[i])
    late = max(waited) - waited[last]
    text = f"All {len(tasks)} tasks have arrived: {strategy.num_replicas_in_sync} replicas"
    text += f"; {tasks[last]} came last, {late:.1f} s after the first" if late > 1 else ""
    findings.append(ok("arrival", text, tasks=len(tasks), replicas=strategy.num_replicas_in_sync, waited=waited))
    return strategy


def _runtime(strategy: MultiWorkerMirroredStrategy) -> Runtime:
    return strategy._demanded_replicas().runtime  # pyright: ignore[reportPrivateUsage]


def _clocks(strategy: MultiWorkerMirroredStrategy, runtime: Runtime) -> Iterator[Finding]:
    """Yields how far the clocks of the tasks are apart, and how long a message to all takes."""
    del strategy
    taken: list[float] = []
    skews: list[list[float]] = []
    for _ in range(_ROUNDS):
        # All leave a first exchange at about the same time, and read their clocks then.
        runtime.all_gather_object("clocks: ready", None)
        began = time.monotonic()
        times = runtime.all_gather_object("clocks", time.time())
        taken.append(time.monotonic() - began)
        skews.append([each - times[0] for each in times])
    exchange = statistics.median(taken)
    found = [statistics.median(each) for each in zip(*skews, strict=True)]
    worst = max(range(len(found)), key=lambda i: abs(found[i]))
    yield ok("messages", f"An exchange of small messages among all takes {exchange * 1e3:.1f} ms", seconds=exchange)
    if abs(found[worst]) > _CLOCK_SECONDS + exchange:
        text = f"The clock of {runtime.tasks[worst]} is {found[worst]:+.1f} s from that of {runtime.tasks[0]}"
        advice = "Let all machines follow one time server. Training compares no clocks; logs and event files do."
        yield warning("clocks", text, advice, skew=found)
    else:
        yield ok("clocks", f"All clocks agree within {abs(found[worst]) + exchange:.3f} s", skew=found)


def _sums(strategy: MultiWorkerMirroredStrategy, runtime: Runtime) -> Iterator[Finding]:
    """Yields whether the sum that training uses is right, how long it takes, and the bytes a second."""
    import numpy as np

    count = strategy.num_replicas_in_sync
    expected = count * (count + 1) / 2
    for size_in_bytes in _BYTES:
        values = strategy.experimental_distribute_values_from_function(
            lambda context, n=size_in_bytes // 4: np.full(n, 1.0 + context.replica_id_in_sync_group, np.float32)
        )
        add = _adder(strategy, values)
        right = all(np.all(np.asarray(each) == expected) for each in add())
        if not all(runtime.all_gather_object("the sums", right)):
            text = f"The sum of {size(size_in_bytes)} from {count} replicas is wrong"
            yield error("sums", text, "A machine computes, or the network carries, wrong numbers: take it out.")
            return
        # Medians of few: all rounds together must stay within the two minutes on a slow network.
        rounds = _SMALL_ROUNDS if size_in_bytes < 1 << 20 else _ROUNDS
        # A sum has ended when it has on the slowest task.
        seconds = max(runtime.all_gather_object("durations", _median_seconds(add, rounds)))
        yield _sum(size_in_bytes, seconds, count)


def _adder(strategy: MultiWorkerMirroredStrategy, values: object) -> Callable[[], tuple[np.ndarray, ...]]:
    """Returns a call of the engine's all-reduce on the values, which returns when the sums are there."""
    import jax

    from lockstep.distribute import get_replica_context

    def step(value: jax.Array) -> jax.Array:
        context = get_replica_context()
        assert context is not None
        return context.all_reduce("SUM", value)

    def add() -> tuple[np.ndarray, ...]:
        return jax.block_until_ready(strategy.experimental_local_results(strategy.run(step, args=(values,))))

    return add


def _median_seconds(call: Callable[[], object], rounds: int) -> float:
    taken: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def _sum(size_in_bytes: int, seconds: float, count: int) -> Finding:
    figures = {"bytes": size_in_bytes, "seconds": seconds}
    if size_in_bytes == _BYTES[0]:
        return ok("sums", f"The smallest sum over {count} replicas takes {seconds * 1e3:.2f} ms", **figures)
    # As NCCL's tests count: each byte crosses the bus 2(n - 1)/n times in the best algorithm.
    speed = size_in_bytes * 2 * (count - 1) / count / seconds
    text = f"A sum of {size(size_in_bytes)} takes {seconds * 1e3:.1f} ms: {speed / 1e9:.2f} GB/s for each replica"
    if size_in_bytes == _BYTES[-1] and speed < _SLOW_BYTES_PER_SECOND:
        advice = 'Look for a slow link; CommunicationOptions(gradient_dtype="bfloat16") halves what travels.'
        return warning("sums", text, advice, bus_bytes_per_second=speed, **figures)
    return ok("sums", text, bus_bytes_per_second=speed, **figures)


def _checkpoint(runtime: Runtime, shared: Path | None) -> Iterator[Finding]:
    """Yields whether all tasks read the checkpoint that the chief writes, and how fast."""
    directories = runtime.all_gather_object("the shared directory", None if shared is None else str(shared))
    if None in directories:
        without = ", ".join(task for task, each in zip(runtime.tasks, directories, strict=True) if each is None)
        advice = "--shared DIR, in every task, writes a checkpoint there and reads it in all."
        yield note("checkpoint", f"No directory was given to {without}: none was written", advice)
        return
    assert shared is not None
    # The chief's process id and time: two tests in one directory do not disturb each other.
    name = runtime.all_gather_object("its name", f"{_NAME}-{os.getpid()}-{time.time_ns()}")[0]
    directory = shared / name
    try:
        yield from _write_and_read(runtime, directory)
    finally:
        if runtime.is_chief:
            shutil.rmtree(directory, ignore_errors=True)


def _write_and_read(runtime: Runtime, directory: Path) -> Iterator[Finding]:
    outcome = _write(directory) if runtime.is_chief else None
    # All wait for the chief's word before they look; what it says is what they must find.
    problem, digest, written = runtime.all_gather_object("the checkpoint", outcome)[0]
    chief = runtime.tasks[0]
    if problem:
        text = f"{chief} cannot write a checkpoint in {directory.parent}: {problem}"
        yield error("checkpoint", text, "Let the user of every task write there, and free some space.")
        return
    found, taken = _read(directory)
    results = runtime.all_gather_object("what was read", (found, taken))
    bad = [f"{task}: {text}" for task, (text, _) in zip(runtime.tasks, results, strict=True) if text != digest]
    if bad:
        text = f"Not all tasks read what {chief} has written in {directory.parent}: {'; '.join(bad)}"
        yield error("checkpoint", text, "Mount the same file system there on all machines.", tasks=bad)
        return
    slowest = max(seconds for _, seconds in results)
    speeds = [f"{_CHECKPOINT_BYTES / each / 1e6:.0f} MB/s" for each in (written, slowest)]
    text = f"A checkpoint of {size(_CHECKPOINT_BYTES)} in {directory.parent}: written at {speeds[0]}, "
    text += f"read by all at {speeds[1]} or more"
    yield ok("checkpoint", text, bytes=_CHECKPOINT_BYTES, write_seconds=written, read_seconds=slowest)


def _write(directory: Path) -> tuple[str, str, float]:
    """Writes a checkpoint; returns the problem, if there is one, its digest, and the seconds until it is on disk."""
    import numpy as np

    from lockstep.checkpoint import CheckpointStore

    # Not zeros, which some file systems do not store.
    data = np.random.default_rng(0).integers(0, 255, _CHECKPOINT_BYTES, np.uint8)
    began = time.perf_counter()
    try:
        directory.mkdir()
        with CheckpointStore(directory) as store:
            store.save(0, {"data": data})
            store.wait()
    except (LockstepError, OSError) as problem:
        return str(problem), "", 0.0
    return "", _digest(data), time.perf_counter() - began


def _read(directory: Path) -> tuple[str, float]:
    """Reads the checkpoint; returns its digest or a problem, and the seconds."""
    from lockstep.checkpoint import latest_checkpoint, load

    began = time.perf_counter()
    try:
        newest = latest_checkpoint(directory)
        if newest is None:
            return f"it is not there ({directory.name})", 0.0
        data = load(newest).arrays["data"]
    except (LockstepError, OSError) as problem:
        return str(problem), 0.0
    return _digest(data), time.perf_counter() - began


def _digest(data: np.ndarray) -> str:
    return hashlib.sha256(data.tobytes()).hexdigest()
