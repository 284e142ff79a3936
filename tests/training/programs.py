"""Loops of a user's own, run on any layout."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import lockstep as ls
from lockstep.training import Every, Program

ROWS = 30
OPTIMIZER = optax.adam(1e-2)


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(ROWS, 6)).astype("float32"), rng.normal(size=(ROWS, 2)).astype("float32")


def dataset(batch: int = 8) -> ls.data.Dataset:
    return ls.data.Dataset.from_tensor_slices(data()).shuffle(ROWS, seed=3).batch(batch)


def state() -> dict[str, Any]:
    """Arrays, a key, numbers that change and numbers that do not, a function, text, and nothing."""
    rng = np.random.default_rng(1)
    params = {k: 0.3 * rng.normal(size=s).astype("float32") for k, s in {"in": (6, 8), "out": (8, 2)}.items()}
    return {
        "params": params,
        "optimizer": OPTIMIZER.init(params),
        "mean": np.zeros(8, np.float32),
        "key": jax.random.key(7),
        "steps": 0,
        "rate": 0.2,
        "activation": jnp.tanh,
        "name": "mlp",
        "nothing": None,
    }


def step(state: dict[str, Any], batch: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Compares examples, normalises over the batch, drops out, and noises."""
    x, y = batch
    key, mask_key = jax.random.split(state["key"])

    def loss_of(params: Any) -> Any:
        hidden = state["activation"](x @ params["in"])
        mean = hidden.mean(0)
        hidden = jnp.where(jax.random.bernoulli(mask_key, 1 - state["rate"], hidden.shape), hidden - mean, 0.0)
        out = hidden @ params["out"]
        return jnp.mean((out - y) ** 2) + 0.1 * jnp.mean(jax.nn.logsumexp(hidden @ hidden.T, -1)), mean

    (loss, mean), gradients = jax.value_and_grad(loss_of, has_aux=True)(state["params"])
    updates, optimizer = OPTIMIZER.update(gradients, state["optimizer"], state["params"])
    after = {
        "params": optax.apply_updates(state["params"], updates),
        "optimizer": optimizer,
        "mean": 0.9 * state["mean"] + 0.1 * mean,
        "key": key,
        "steps": state["steps"] + 1,
    }
    return {**state, **after}, {"loss": loss, "examples": y.shape[0]}


def replica_step(state: dict[str, Any], batch: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of a replica's share; says itself what is exchanged."""
    x, y = batch
    replica = ls.distribute.get_replica_context()

    def loss_of(params: Any) -> Any:
        return jnp.mean((state["activation"](x @ params["in"]) @ params["out"] - y) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(state["params"])
    gradients = replica.average_gradients(gradients)
    updates, optimizer = OPTIMIZER.update(gradients, state["optimizer"], state["params"])
    everyone = replica.all_gather(x, axis=0)
    after = {
        "params": optax.apply_updates(state["params"], updates),
        "optimizer": optimizer,
        "mean": 0.9 * state["mean"] + 0.1 * everyone.mean(),
        "steps": state["steps"] + 1,
    }
    return {**state, **after}, {"loss": loss, "examples": replica.all_reduce("sum", y.shape[0])}


@contextlib.contextmanager
def compiled_quickly() -> Generator[None]:
    """What is computed counts here, and not how fast."""
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", False)


def arrays(state: Any) -> dict[str, np.ndarray]:
    """The arrays of a state, keys as numbers."""
    found, _ = jax.tree_util.tree_flatten_with_path({**state, "key": jax.random.key_data(state["key"])})
    return {jax.tree_util.keystr(p): np.asarray(v) for p, v in found if isinstance(v, (jax.Array, np.ndarray, int))}


@compiled_quickly()
def fitted(strategy: Any, batch: int = 8, view: Any = "global", **arguments: Any) -> dict[str, np.ndarray]:
    """`fit`, and what a function sees of it."""
    seen: list[tuple[int, int, float]] = []
    note = Every(4, lambda t, logs: seen.append((t.step, logs["examples"], logs["loss"])), chief_only=False)
    program = Program(step if view == "global" else replica_step, strategy, view)
    after = program.fit(
        _of_worker(strategy), dataset(batch), **{"epochs": 2, "verbose": 0, "callbacks": [note], **arguments}
    )
    return {**arrays(after), "seen": np.asarray(seen), "losses": np.asarray(program.history["loss"])}


@compiled_quickly()
def looped(strategy: Any, batch: int = 8) -> dict[str, np.ndarray]:
    """A loop around single steps."""
    program, after, losses = Program(step, strategy), _of_worker(strategy), []
    data = dataset(batch)
    distributed = strategy.experimental_distribute_dataset(data)
    for epoch in range(2):
        for one in program.batches(data) if epoch else distributed:
            after, logs = program(after, one)
        losses.append(float(logs["loss"]))
    return {**arrays(program.local(after)), "losses": np.asarray(losses)}


def _of_worker(strategy: Any) -> Any:
    """Workers begin with values of their own: those of the chief count."""
    resolver = strategy.cluster_resolver
    worker = 0 if resolver is None else resolver.task_id or 0
    return {**state(), "mean": np.full(8, worker, np.float32)}
