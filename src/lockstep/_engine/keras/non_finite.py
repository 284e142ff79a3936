"""Steps of training whose loss or gradients are not finite: undone inside of the step program, and reported.

All workers decide by the same numbers what is undone and counted, so all of them do the same in the same step. The
counters are outputs of the step, and are read some dispatches later: nothing waits.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from keras.src import backend
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from lockstep._engine.keras.replica_step import replace_method
from lockstep._engine.runtime import failure
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.batches import DeviceBatch
from lockstep._engine.step.protocol import Step
from lockstep._types import ArrayLike, Batch, Model, Optimizer, PyTree, State
from lockstep.errors import NonFiniteError

_log = logging.getLogger("lockstep")
# Dispatches whose counters are not read yet: as many as the loop leaves in flight, or fewer.
_UNREAD, _UNREAD_CHUNKS = 8, 1
# Numbers of the counters: steps so far, steps undone, undone in a row, the first of that row, whether it was too long.
_STEPS, _UNDONE, _ROW, _FIRST, _ENDED = range(5)
_NON_TRAINABLE = 1


@dataclass(frozen=True)
class Ended:
    """The end of a training that cannot go on.

    Attributes:
        error: The cause.
    """

    error: NonFiniteError


def watched(step: Step, model: Model, most: int) -> Step:
    """Returns a step of (state, counters) for a step of the state, with the counters as outputs too."""
    # The loss and the gradients are known before the weights are changed, so that the choice between old and new ones
    # is part of the computation of the new ones. A step takes longer by a pass over the gradients: 0.2 to 0.3 ms on a
    # 2-core EPYC for 100,000 to 350,000 weights.

    def both(carried: State, batch: Batch) -> tuple[Any, Any]:
        before, counters = carried
        gradients: list[Any] = []
        with _collect_gradients(gradients):
            logs, after = step(before, batch)
        ended = counters[_ENDED] > 0
        is_bad = ~_is_finite(logs, gradients, before, after) & ~ended
        undo = is_bad | ended

        def choose(old: State, new: State) -> Any:
            return old if new is old else jnp.where(undo, old, new.astype(old.dtype))

        chosen = jax.tree.map(choose, before, after)
        counted = _count(counters, is_bad, ended, most)
        return (_logs(model, logs, chosen, undo), counted), (chosen, counted)

    return both


@contextlib.contextmanager
def _collect_gradients(gradients: list[Any]) -> Generator[None]:
    """Collects gradients that are applied; not those of a `LossScaleOptimizer`, which skips what is not finite."""

    def collect(apply: Callable[..., Any]) -> Callable[..., Any]:
        def collecting(
            optimizer: Optimizer, optimizer_variables: PyTree, grads: PyTree, trainable_variables: PyTree
        ) -> Any:
            if not isinstance(optimizer, LossScaleOptimizer) and not is_scaled:
                gradients.extend(g for g in grads if g is not None)
            return apply(optimizer, optimizer_variables, grads, trainable_variables)

        return collecting

    def leave_out(apply: Callable[..., Any]) -> Callable[..., Any]:
        def scaled(*arguments: Any, **named: Any) -> Any:
            nonlocal is_scaled
            before, is_scaled = is_scaled, True
            try:
                return apply(*arguments, **named)
            finally:
                is_scaled = before

        return scaled

    is_scaled = False
    with (
        replace_method(BaseOptimizer, "stateless_apply", collect),
        replace_method(LossScaleOptimizer, "stateless_apply", leave_out),
    ):
        yield


def _is_finite(logs: Any, gradients: list[Any], before: Any, after: Any) -> jax.Array:
    loss = [logs["loss"]] if isinstance(logs, dict) and "loss" in logs else []
    finite = [_all_finite(v) for v in jax.tree.leaves(loss)]
    # Optimizers square gradients: those whose squares are infinite are too large as well.
    finite += [jnp.isfinite(jnp.sum(jnp.square(g.astype(jnp.promote_types(g.dtype, jnp.float32))))) for g in gradients]
    # Constants among these may be infinite, such as masks.
    pairs = zip(jax.tree.leaves(before[_NON_TRAINABLE]), jax.tree.leaves(after[_NON_TRAINABLE]), strict=True)
    finite += [_all_finite(new) | ~_all_finite(old) for old, new in pairs if new is not old and _may_be_nan(new)]
    return jnp.stack([jnp.asarray(f) for f in finite]).all() if finite else jnp.asarray(True)


def _all_finite(value: ArrayLike) -> Any:
    value = jnp.asarray(value)
    return jnp.isfinite(value).all() if _may_be_nan(value) else jnp.asarray(True)


def _may_be_nan(value: ArrayLike) -> bool:
    return jnp.issubdtype(value.dtype, jnp.inexact)


def _count(counters: jax.Array, is_bad: jax.Array, ended: jax.Array, most: int) -> jax.Array:
    bad = is_bad.astype(jnp.int32)
    row = jnp.where(ended, counters[_ROW], (counters[_ROW] + 1) * bad)
    first = jnp.where(is_bad & (counters[_ROW] == 0), counters[_STEPS], counters[_FIRST])
    too_long = (row >= most).astype(jnp.int32)
    return jnp.stack([counters[_STEPS] + 1, counters[_UNDONE] + bad, row, first, too_long]).astype(jnp.int32)


def _logs(model: Model, logs: Any, state: State, undo: jax.Array) -> Any:
    """Returns the logs of a step; metrics' results as they were, if it is undone."""
    if not isinstance(logs, dict):
        return logs
    with backend.StatelessScope(state_mapping=list(zip(model.metrics_variables, state[3], strict=True))):
        results = model.get_metrics_result()
    return {
        k: jnp.where(undo, results[k], v).astype(jnp.asarray(v).dtype) if k in results else v for k, v in logs.items()
    }


def new_counters() -> np.ndarray[Any, Any]:
    """Returns the counters of a training that begins."""
    return np.zeros(5, np.int32)


class Reports:
    """Reads the counters of dispatches, and finds the workers whose input is not finite.

    Args:
        where: Describes a step, by its number since training began.
        most: After how many steps in a row that are not finite training ends.

    Attributes:
        dispatched: How many steps were dispatched.
        undone: How many steps were undone, as far as is known.
        ended: Set when training cannot go on.
    """

    def __init__(self, where: Callable[[int], str], most: int, runtime: Runtime) -> None:
        self._where = where
        self._most = most
        self._runtime = runtime
        self._unread: deque[tuple[Any, DeviceBatch]] = deque()
        self._steps = 0
        self.undone = 0
        self.dispatched = 0
        self.ended: Ended | None = None

    def add(self, counters: Any, placed: DeviceBatch) -> None:
        """Adds a dispatch, and reads the counters of an earlier one; a collective call."""
        self._unread.append((counters, placed))
        self.dispatched += placed.steps
        while len(self._unread) > (_UNREAD_CHUNKS if placed.capacity else _UNREAD):
            self._read()

    def flush(self) -> None:
        """Waits for all dispatches, and reads their counters; a collective call."""
        while self._unread:
            self._read()

    def _read(self) -> None:
        value, placed = self._unread.popleft()
        counters = [int(v) for v in np.asarray(value.addressable_data(0))]
        start, self._steps = self._steps, self._steps + placed.steps
        new, self.undone = counters[_UNDONE] - self.undone, counters[_UNDONE]
        if self.ended or not new:
            return
        first = counters[_FIRST] if counters[_FIRST] >= start else start
        # All workers come here after the same dispatch.
        mine = _describe_input(placed, placed.first + first - start)
        everyone = self._runtime.all_gather_object("a step that is not finite", mine)
        causes = [f"{task}: {what}" for task, what in zip(self._runtime.tasks, everyone, strict=True) if what]
        where = self._where(first) + (f" (and {new - 1} after it)" if new > 1 else "")
        cause = f"In its input: {'; '.join(causes)}." if causes else "The input of all tasks was finite."
        text = f"The loss of {where}, or a gradient of it, is not finite. {cause}"
        if not counters[_ENDED]:
            if self._runtime.is_chief:
                _log.warning("%s It is undone, and training goes on (%d so far).", text, self.undone)
            return
        row = f" That is {self._most} in a row." if self._most > 1 else ""
        error = NonFiniteError(
            f"A step of training must have a finite loss and finite gradients. {text}{row} All tasks stop with the "
            "weights before it. Look at the data and the learning rate, or limit the gradients (clipnorm=...)."
        )
        failure.mark_agreed(error)
        self.ended = Ended(error)


def _describe_input(placed: DeviceBatch, place: int) -> str | None:
    """Describes the arrays of this worker's input that are not finite; of data in the device cache, all of these."""
    is_stack = placed.capacity > 0 and placed.batch_fn is None
    whole = " of all data" if placed.batch_fn else ""
    bad: list[str] = []
    for i, leaf in enumerate(jax.tree.leaves(placed.data)):
        if not isinstance(leaf, jax.Array) or not _may_be_nan(leaf):
            continue
        # One of the replicas that hold the same rows.
        shards = {str(shard.index): shard.data for shard in leaf.addressable_shards}
        arrays = [np.asarray(shard)[place] if is_stack else np.asarray(shard) for shard in shards.values()]
        if count := sum(int((~np.isfinite(a)).sum()) for a in arrays):
            bad.append(f"{count} values of array {i}{whole}")
    return ", ".join(bad) or None
