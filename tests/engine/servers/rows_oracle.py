"""Trainings of one table and some dense variables: by plain Keras, and by servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from lockstep._engine.servers.layout import Layout, Variable
from lockstep._engine.servers.requests import JobSpec, Pull, Push
from lockstep._engine.servers.rules import rule_of
from lockstep._engine.servers.server_state import ServerState
from lockstep._types import Array, Optimizer

TABLE, KERNEL, BIAS = "emb/embeddings", "dense/kernel", "dense/bias"
ROWS, WIDTH = 60, 4
SHAPES = {TABLE: (ROWS, WIDTH), KERNEL: (6, 3), BIAS: (3,)}


def variables(table: str = "rows", dtype: str = "float32") -> list[Variable]:
    return [
        Variable(TABLE, SHAPES[TABLE], dtype, "rows" if table == "rows" else "dense"),
        Variable(KERNEL, SHAPES[KERNEL], dtype, "dense"),
        Variable(BIAS, SHAPES[BIAS], dtype, "dense"),
    ]


def initial(dtype: str = "float32") -> dict[str, Array]:
    random = np.random.default_rng(3)
    return {name: (random.normal(size=shape) * 0.1).astype(dtype) for name, shape in SHAPES.items()}


def gradients(step: int, dtype: str = "float32") -> dict[str, Any]:
    """Returns a step's gradients; rows of the table are touched as words are: few often, most seldom."""
    random = np.random.default_rng([9, step])
    ids = np.unique((np.exp(random.random(5) * np.log(ROWS)) - 1).astype(np.int64))
    return {
        TABLE: (ids, random.normal(size=(ids.size, WIDTH)).astype(dtype)),
        KERNEL: random.normal(size=SHAPES[KERNEL]).astype(dtype),
        BIAS: random.normal(size=SHAPES[BIAS]).astype(dtype),
    }


def whole(gradient: dict[str, Any], dtype: str = "float32") -> list[Array]:
    """Returns a step's gradients as one device has them."""
    table = np.zeros(SHAPES[TABLE], dtype)
    ids, rows = gradient[TABLE]
    table[ids] = rows
    return [table, gradient[KERNEL], gradient[BIAS]]


def train_plainly(
    optimizer: Optimizer, steps: int, dtype: str = "float32", rate: Callable[[int], float] | None = None
) -> dict[str, Array]:
    """Returns the weights after steps of one device; a rate is set before each step, as callbacks do."""
    weights = []
    for name, value in initial(dtype).items():
        scope, last = name.split("/")
        with keras.name_scope(scope):
            weights.append(keras.Variable(value, dtype=dtype, name=last))
    optimizer.build(weights)
    import jax

    @jax.jit
    def step(state: Any, given: Any) -> Any:
        return optimizer.stateless_apply(state[1], given, state[0])

    state: Any = ([v.value for v in weights], [v.value for v in optimizer.variables])
    for i in range(steps):
        if rate:
            place = next(n for n, v in enumerate(optimizer.variables) if v is optimizer.learning_rate)
            state[1][place] = np.asarray(rate(i), state[1][place].dtype)
        state = step(state, whole(gradients(i, dtype), dtype))
    return dict(zip(SHAPES, map(np.asarray, state[0]), strict=True))


class Servers:
    """Servers without sockets."""

    def __init__(
        self,
        optimizer: Optimizer,
        count: int = 1,
        *,
        lazy: bool = False,
        mode: Any = "async",
        replicas: int = 1,
        dtype: str = "float32",
        log_order: bool = False,
        held: Sequence[Variable] | None = None,
        partitions: Any = None,
    ) -> None:
        held = variables(dtype=dtype) if held is None else held
        self.layout = Layout.make(held, count, partitions)
        self.dtype = dtype
        self.spec = JobSpec(self.layout, rule_of(optimizer, held, lazy=lazy), mode, replicas, {}, log_order)
        self.states = [ServerState(i) for i in range(count)]
        self.open()

    def open(self, generation: int = 0) -> None:
        for state in self.states:
            state.open(self.spec, generation, {n: self.own(state.server, n, v) for n, v in self._initial(state.server)})

    def _initial(self, server: int) -> list[tuple[str, Array]]:
        names = {s.variable for s in self.layout.of_server(server)}
        return [(name, value) for name, value in initial(self.dtype).items() if name in names]

    def own(self, server: int, name: str, value: Array) -> Array:
        parts = [value[s.start : s.stop] for s in self.layout.of_server(server) if s.variable == name]
        return np.concatenate(parts)

    def pushes(self, ticket: int, gradient: dict[str, Any], **facts: Any) -> list[Push]:
        """Returns what is pushed to each server."""
        pushes = []
        for server in range(len(self.states)):
            push = Push(facts.pop("generation", 0), ticket, **facts)
            names = {s.variable for s in self.layout.of_server(server)}
            for name in names:
                if self.layout.variable(name).kind == "rows":
                    ids, rows = gradient[name]
                    positions, own = self.layout.split_rows(name, ids)[server]
                    push.rows = {**push.rows, name: (own, rows[positions])}
                elif isinstance(gradient[name], tuple):
                    push.dense = {**push.dense, name: self.own(server, name, whole(gradient, self.dtype)[0])}
                else:
                    push.dense = {**push.dense, name: self.own(server, name, gradient[name])}
            pushes.append(push)
        return pushes

    def train(self, steps: int, first: int = 0, pull: bool = True, rate: Callable[[int], float] | None = None) -> None:
        for i in range(first, first + steps):
            gradient = gradients(i, self.dtype)
            hyper = {"learning_rate": rate(i)} if rate else {}
            for state, push in zip(self.states, self.pushes(i, gradient, hyper=hyper), strict=True):
                if pull:
                    state.exchange(None, Pull(0, {n: ids for n, (ids, _) in push.rows.items()}), 1.0)
                assert state.exchange(push, None, 1.0).applied

    def weights(self) -> dict[str, Array]:
        result = {}
        for name in SHAPES:
            parts = [self.states[s.server].read(name, s.start, s.stop) for s in self.layout.shards_of(name)]
            result[name] = np.concatenate(parts)
        return result

    def bits(self) -> dict[str, bytes]:
        return {name: value.tobytes() for name, value in self.weights().items()}
