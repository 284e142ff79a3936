"""Bare jax: the ceilings. A step in plain `jax.numpy`, and the two loops around it that can be written by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Step = Callable[[Any, Any], Any]

_MLP = ((784, 256), (256, 256), (256, 10))
# Of a product whose operands stay in the caches and fill all cores.
_LARGE = 1024


def mlp(random: np.random.Generator) -> tuple[Any, Step]:
    """Returns the state and the step of `keras_models.mlp`: its loss, its metric and Adam."""
    params = [_dense(random, a, b) for a, b in _MLP]

    def apply(params: Any, x: Any) -> Any:
        for kernel, bias in params[:-1]:
            x = jax.nn.relu(x @ kernel + bias)
        return x @ params[-1][0] + params[-1][1]

    return _with_adam(params), partial(_step, apply, _adam)


def mlp_products(random: np.random.Generator) -> tuple[Any, Step]:
    """Returns what no step of `mlp` can do without: its eight products of matrices, and Adam for the kernels.

    No bias, activation, loss or metric. How fast XLA's kernels are bounds every step that is made of them.
    """
    return _with_adam(_kernels(random)), _products


def mlp_adam(random: np.random.Generator) -> tuple[Any, Step]:
    """Returns Adam for the kernels of `mlp` alone, with gradients that are there."""
    kernels = _kernels(random)
    gradients = [jnp.ones_like(kernel) for kernel in kernels]

    def step(state: Any, batch: Any) -> Any:
        kernels, slots, metrics = state
        return *_adam(kernels, slots, gradients), metrics + batch[1][0]

    return _with_adam(kernels), step


def mlp_multiplications(batch: int) -> int:
    """Returns the floating point operations of the eight products of a step of `mlp`."""
    (first, *others) = [2 * batch * a * b for a, b in _MLP]
    return 2 * first + 3 * sum(others)  # Nobody needs the gradient of the pictures.


def operations_per_second(seconds: float) -> float:
    """Returns how many floating point operations a second a large product of matrices does, all cores together."""
    product = jax.jit(jnp.matmul)
    matrix = jnp.ones((_LARGE, _LARGE))
    jax.block_until_ready(product(matrix, matrix))
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        jax.block_until_ready(product(matrix, matrix))
        count += 1
    return 2 * _LARGE**3 * count / (time.perf_counter() - start)


def cnn(
    random: np.random.Generator, filters: int = 32, pool: bool = True, width: int = 64, axis: str = ""
) -> tuple[Any, Step]:
    """Returns the state and the step of `keras_models.estimator_cnn`, or without pooling of `workers_cnn`: SGD.

    With `axis` it is the step of one replica, which averages each gradient over that axis.
    """
    side = 13 if pool else 26
    kernel = (random.normal(size=(3, 3, 1, filters)) / 3).astype(np.float32)
    dense = [_dense(random, side * side * filters, width), _dense(random, width, 10)]
    params = [(jnp.asarray(kernel), jnp.zeros(filters)), *dense]

    def apply(params: Any, x: Any) -> Any:
        (kernel, bias), hidden, last = params
        x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x + bias)
        if pool:
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = jax.nn.relu(x.reshape(x.shape[0], -1) @ hidden[0] + hidden[1])
        return x @ last[0] + last[1]

    return (params, (), _metrics()), partial(_step, apply, partial(_sgd, rate=1e-3), axis=axis)


def loop(state: Any, step: Step, batches: Iterator[Any], seconds: float, warm_up: int = 10, every: int = 8) -> float:
    """Calls the compiled step for each batch; returns steps/s after the warm-up.

    `every` so many steps it waits for the device, so that few batches are under way.
    """
    run = jax.jit(step, donate_argnums=0)
    for _ in range(warm_up):
        state = run(state, next(batches))
    jax.block_until_ready(state)
    steps, start = 0, time.perf_counter()
    for batch in batches:
        state = run(state, batch)
        steps += 1
        if steps % every == 0:
            jax.block_until_ready(state[2])
        if time.perf_counter() - start > seconds:
            break
    jax.block_until_ready(state)
    return steps / (time.perf_counter() - start)


def scan(state: Any, step: Step, batches: Any, seconds: float) -> float:
    """Runs `lax.scan` over all batches, which lie on the device; returns steps/s after one pass of warm-up."""
    run = jax.jit(lambda state, batches: jax.lax.scan(lambda s, b: (step(s, b), None), state, batches)[0])
    batches = jax.block_until_ready(jax.device_put(batches))
    state = jax.block_until_ready(run(state, batches))
    passes, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        state = jax.block_until_ready(run(state, batches))
        passes += 1
    return passes * len(batches[1]) / (time.perf_counter() - start)


def endless(x: np.ndarray, y: np.ndarray, batch: int) -> Iterator[Any]:
    """Yields consecutive batches, again and again."""
    while True:
        for i in range(0, len(x) - batch + 1, batch):
            yield x[i : i + batch], y[i : i + batch]


def stacked(x: np.ndarray, y: np.ndarray, batch: int) -> Any:
    """Returns the same batches of one pass as arrays of batches."""
    steps = len(x) // batch
    return tuple(a[: steps * batch].reshape(steps, batch, *a.shape[1:]) for a in (x, y))


def _dense(random: np.random.Generator, inputs: int, outputs: int) -> tuple[Any, Any]:
    limit = np.sqrt(6 / (inputs + outputs))
    kernel = random.uniform(-limit, limit, (inputs, outputs)).astype(np.float32)
    return jnp.asarray(kernel), jnp.zeros(outputs)


def _kernels(random: np.random.Generator) -> list[Any]:
    return [_dense(random, a, b)[0] for a, b in _MLP]


def _with_adam(params: Any) -> Any:
    first, second = (jax.tree.map(jnp.zeros_like, params) for _ in range(2))  # Each is given to the step to write to.
    return params, (first, second, jnp.zeros(())), _metrics()


def _metrics() -> Any:
    return jnp.zeros(3)


def _step(apply: Any, update: Any, state: Any, batch: Any, axis: str = "") -> Any:
    params, slots, metrics = state
    x, y = batch

    def loss_of(params: Any) -> Any:
        logits = apply(params, x)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None].astype(jnp.int32), axis=1)
        return -chosen.mean(), logits

    (loss, logits), gradients = jax.value_and_grad(loss_of, has_aux=True)(params)
    if axis:
        gradients = jax.tree.map(lambda g: jax.lax.pmean(g, axis), gradients)
    params, slots = update(params, slots, gradients)
    hits = (logits.argmax(-1) == y).sum()
    counted = jnp.stack([loss * len(y), hits.astype(jnp.float32), jnp.float32(len(y))])
    return params, slots, metrics + (jax.lax.psum(counted, axis) if axis else counted)


def _products(state: Any, batch: Any) -> Any:
    kernels, slots, metrics = state
    first, second, last = kernels
    x = batch[0]
    a = x @ first
    b = a @ second
    c = b @ last
    to_b = c @ last.T
    to_a = to_b @ second.T
    kernels, slots = _adam(kernels, slots, [x.T @ to_a, a.T @ to_b, b.T @ c])
    return kernels, slots, metrics


def _sgd(params: Any, slots: Any, gradients: Any, rate: float) -> Any:
    return jax.tree.map(lambda p, g: p - rate * g, params, gradients), slots


def _adam(params: Any, slots: Any, gradients: Any, rate: float = 1e-3) -> Any:
    first, second, count = slots
    count = count + 1
    first = jax.tree.map(lambda m, g: m + (g - m) * 0.1, first, gradients)
    second = jax.tree.map(lambda v, g: v + (g * g - v) * 0.001, second, gradients)
    scale = rate * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    params = jax.tree.map(lambda p, m, v: p - scale * m / (jnp.sqrt(v) + 1e-7), params, first, second)
    return params, (first, second, count)
