"""A small training on a job with parameter servers: numpy gradients, by the interface that strategies use."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lockstep._engine.servers.call import Call
from lockstep._engine.servers.job import Job
from lockstep._engine.servers.layout import Layout, Variable
from lockstep._engine.servers.messages import Superseded
from lockstep._engine.servers.requests import JobSpec, Pull, Push
from lockstep._engine.servers.tickets import Lease

ROWS, WIDTH = 64, 4


def spec_of(num_servers: int, mode: str = "async", replicas: int = 1) -> JobSpec:
    variables = (
        Variable("table/embeddings", (ROWS, WIDTH), "float32", "rows"),
        Variable("dense/kernel", (WIDTH, 3), "float32", "dense"),
        Variable("dense/bias", (3,), "float32", "dense"),
        Variable("norm/mean", (3,), "float32", "delta"),
        Variable("counter", (), "float32", "dense"),
    )
    return JobSpec(Layout.make(variables, num_servers, {}), _rule(variables), mode, replicas, {}, False)


def _rule(variables: tuple[Variable, ...]) -> Any:
    import keras

    from lockstep._engine.servers.rules import rule_of

    return rule_of(keras.optimizers.SGD(0.01), [v for v in variables if v.kind != "delta"])


def initial_values() -> dict[str, Any]:
    random = np.random.default_rng(0)
    kernel, table = random.normal(size=(WIDTH, 3)), random.normal(size=(ROWS, WIDTH))
    return {"dense/kernel": kernel.astype(np.float32), "table/embeddings": table.astype(np.float32)}


def compute(call: Call, lease: Lease, spec: JobSpec) -> None:
    """Computes a lease: a gradient that depends on the batch and on what is pulled."""
    random = np.random.default_rng([lease.batch, lease.epoch, lease.share])
    ids = np.unique(random.integers(0, ROWS, 9))
    at = lease.version if spec.mode == "sync" else None
    pulled = call.exchange(None, Pull(lease.generation, {"table/embeddings": ids}, -1, at))
    if pulled.status == "late":
        call.give_back(lease)
        return
    assert pulled.dense is not None
    rows, kernel = pulled.rows["table/embeddings"], pulled.dense["dense/kernel"]
    target = random.normal(size=(len(ids), 3)).astype(np.float32)
    error = rows @ kernel + pulled.dense["dense/bias"] - target
    weight = 1.0 / lease.shares
    push = Push(
        lease.generation,
        lease.ticket,
        lease.share,
        weight,
        {"learning_rate": lease.hyper["learning_rate"]},
        {"table/embeddings": (ids, error @ kernel.T)},
        {"dense/kernel": rows.T @ error, "dense/bias": error.sum(0), "counter": np.asarray(-100.0, np.float32)},
        {"norm/mean": error.mean(0)},
        pulled.version,
    )
    call.exchange(push, None)
    call.done(lease, {"loss": np.asarray(float((error**2).sum())), "count": np.asarray(1.0)})


def work(job: Job, pause: Callable[[Lease], None] = lambda lease: None) -> Any:
    """Does a worker's part of one call."""
    call = job.begin("fit", {"rows": ROWS})
    opened = call.opened()
    assert opened is not None
    spec, _ = opened
    while (epoch := call.next_epoch()) is not None:
        while not call.epoch_is_over:
            try:
                lease = call.lease(1.0)
                if lease is None:
                    continue
                if epoch.batches is None and lease.batch >= BATCHES:
                    call.exhausted(BATCHES)
                    continue
                pause(lease)
                compute(call, lease, spec)
            except Superseded:
                break
    return call.result()


def _newest(directory: str) -> str:
    """Returns the directory of the last cut, or "" if there is none."""
    manifests = [p for p in Path(directory).glob("cut-*/servers.json")]
    return str(max(manifests, key=lambda p: tuple(map(int, p.parent.name.split("-")[1:]))).parent) if manifests else ""


BATCHES = 40


def chief(
    job: Job,
    epochs: int = 2,
    batches: int = BATCHES,
    mode: str = "async",
    replicas: int = 1,
    directory: str = "",
    every: int = 10,
    is_known: bool = True,
    on_ticket: Callable[[int], None] = lambda ticket: None,
    is_computing: bool = True,
    delay: float = 0.0,
) -> dict[str, Any]:
    """Does the chief's part: releases, computes what is open, waits for each ticket in order, cuts."""
    call = job.begin("fit", {"rows": ROWS})
    spec = spec_of(job.num_servers, mode, replicas)
    call.open(spec, initial_values())
    losses: dict[int, float] = {}
    step, start = 0, time.monotonic()
    if directory and (newest := _newest(directory)):
        # A chief that was started again goes on from the last cut that is whole.
        cut = call.restore(newest)
        step, losses = cut.step, dict(enumerate(cut.extra["losses"]))
    elif directory:
        call.cut(f"{directory}/cut-0-0", 0, {"losses": []})
    while step < epochs * batches:
        try:
            epoch, first = divmod(step, batches)
            call.begin_epoch(epoch, first, batches if is_known else None)
            while step < (epoch + 1) * batches:
                stop = min((epoch + 1) * batches, (step // every + 1) * every)
                call.release(stop, {"learning_rate": 0.01})
                while step < stop:
                    reports = call.wait(step, 0.0)
                    while reports is None:
                        if is_computing and (lease := call.lease(0.0)) is not None:
                            time.sleep(delay)
                            compute(call, lease, spec)
                        reports = call.wait(step, 0.05)
                    losses[step] = sum(float(r["loss"]) for r in reports)
                    on_ticket(step)
                    step += 1
                if directory:
                    listing = [losses[i] for i in range(step)]
                    call.cut(f"{directory}/cut-{step}-{call.generation}", step, {"losses": listing})
            call.end_epoch(batches)
        except Superseded:
            step = call.recover().step
    values = {v.name: call.read(v.name) for v in spec.layout.variables}
    call.end({"steps": step, "seconds": time.monotonic() - start}, values)
    return {"losses": [losses[i] for i in range(step)], "values": values}
