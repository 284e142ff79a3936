"""What has not been sent of gradients: kept by a step program, handed to the step while it is traced.

Each replica has its own residuals. They are a part of the training's state, but not of the model's: nobody else has a
use for them, and how many there are depends on the replicas. What all replicas keep alike lies there once for each of
them, too.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from lockstep._engine.step import compression
from lockstep._engine.step.compression import Kept
from lockstep._engine.step.placement import fetched
from lockstep._engine.step.reduction import Reduction
from lockstep._engine.step.replica_rows import ReplicaRows
from lockstep._engine.step.replicas import AXIS, Replicas
from lockstep._engine.step.tracing import current_trace
from lockstep.errors import ArgumentError, CheckpointError, UnsupportedError

Step = Callable[[Any, Any], tuple[Any, Any]]
_tracing = threading.local()
# The names of what all replicas have alike begin so.
_COMMON = "common/"
_WHAT = "was not sent of gradients"


class Compensation:
    """What one replica keeps of gradients in one step, while the step is traced.

    Args:
        before: From the last step, for all gradients in the order in which the step adds them up; `None` to find out
            what there is.

    Attributes:
        after: For the next step.
    """

    def __init__(self, before: Kept | None) -> None:
        self._before = before
        self._trace = current_trace()
        self.after = Kept()

    def sum(self, reduction: Reduction, values: Sequence[jax.Array], axis: str, replicas: int) -> list[jax.Array]:
        """Returns the sums of gradients over `axis`; those that nothing makes shorter go as they are.

        Raises:
            UnsupportedError: If it is called from inside of a loop, a condition or a jitted function of the step.
            ArgumentError: If the gradients are not those of the last step.
        """
        self._demand_place()
        wanted = compression.kept_for(reduction, values)
        before = Kept(*map(self._next, Kept._fields, wanted))
        sums, after = compression.summed(reduction, values, before, axis, replicas)
        self.after = Kept(self.after.own + after.own, self.after.common + after.common)
        return sums

    def _next(self, field: str, wanted: Sequence[Any]) -> tuple[jax.Array, ...]:
        """The arrays of these shapes and types that are next in order."""
        if self._before is None:
            return tuple(jnp.zeros(w.shape, w.dtype) for w in wanted)
        start = len(getattr(self.after, field))
        found = getattr(self._before, field)[start : start + len(wanted)]
        if list(map(_kind, found)) != list(map(_kind, wanted)):
            raise _other_gradients()
        return found

    def _demand_place(self) -> None:
        if current_trace() != self._trace:
            raise UnsupportedError(
                "With gradient_dtype or power_sgd_rank gradients must be averaged at the top of a training step, where "
                "what has not been sent can be kept for the next one. Received: an optimizer that is applied inside of "
                "a loop, a condition or a jitted function. Apply it outside, or leave these options out."
            )

    def demand_all(self) -> None:
        """Raises `ArgumentError` unless what was kept of all gradients has been used."""
        if self._before is not None and jax.tree.structure(self.after) != jax.tree.structure(self._before):
            raise _other_gradients()


def _other_gradients() -> ArgumentError:
    return ArgumentError(
        "With gradient_dtype or power_sgd_rank every step must have gradients of the same number, shapes and types: "
        "what was not sent of them is added in the next one. Received a step with others. Compile the model again "
        "after layers were frozen or added, and apply the same optimizers in each step."
    )


def _kind(array: Any) -> tuple[Any, ...]:
    return tuple(array.shape), np.dtype(array.dtype)


@contextlib.contextmanager
def compensating(before: Kept | None) -> Generator[Compensation]:
    """While open, gradients that are averaged are compensated by what was kept; see `Compensation`."""
    outer: Compensation | None = getattr(_tracing, "current", None)
    _tracing.current = Compensation(before)
    try:
        yield _tracing.current
    finally:
        _tracing.current = outer


def exploring() -> contextlib.AbstractContextManager[Compensation]:
    """While open, a step can be traced to look at it; what is taken from its gradients is not kept."""
    return compensating(None)


def current() -> Compensation:
    """The residuals of the step that is being traced."""
    found: Compensation | None = getattr(_tracing, "current", None)
    assert found is not None, "gradients are compensated in training steps of a step program"
    return found


def compensated(step: Step) -> Step:
    """Makes of a replica's step of the state one of (state, residuals), each with a first axis of length 1."""

    def both(carried: tuple[Any, Any], data: Any) -> tuple[Any, tuple[Any, Any]]:
        state, residuals = carried
        with compensating(jax.tree.map(lambda r: r[0], residuals)) as compensation:
            outputs, after = step(state, data)
        compensation.demand_all()
        return outputs, (after, jax.tree.map(lambda r: r[None], compensation.after))

    return both


def uncompensated(step: Step) -> Step:
    """Makes of a step of the state one of (state, no residuals)."""

    def both(carried: tuple[Any, Any], data: Any) -> tuple[Any, tuple[Any, Any]]:
        outputs, after = step(carried[0], data)
        return outputs, (after, ())

    return both


class Residuals:
    """What all replicas keep between the steps of a program: zeros at first.

    Args:
        replicas: Where it runs.

    Attributes:
        shapes: Shapes and types; each has a first axis of replicas. `None` as long as no step has been traced.
    """

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._arrays: Kept | None = None
        self.shapes: Kept | None = None
        self._rows = ReplicaRows(replicas)

    def learn(self, step: Step, state: Any, batch: Any) -> Kept:
        """Finds out what there is, unless that is known.

        Args:
            step: One replica's, of the state.
            state: Arrays, or shapes and types.
            batch: Shapes and types of a global batch that the replicas can divide.
        """
        if self.shapes is None:
            self.note(_traced(self._replicas, step, state, batch))
        assert self.shapes is not None
        return self.shapes

    def note(self, found: Kept) -> bool:
        """Takes note of what one replica keeps; returns whether that is news."""
        count = self._replicas.count
        shapes = Kept(*(tuple(jax.ShapeDtypeStruct((count, *r.shape), r.dtype) for r in part) for part in found))
        is_news = self.shapes != shapes
        self.shapes = shapes
        return is_news and bool(jax.tree.leaves(shapes))

    def take(self) -> Kept:
        """Hands them to a step, which consumes them.

        Raises:
            CheckpointError: If those that were restored are of other gradients.
        """
        assert self.shapes is not None
        arrays = self._arrays or Kept(self._zeros(self.shapes.own))
        if list(map(_kind, arrays.own)) != list(map(_kind, self.shapes.own)):
            raise CheckpointError(
                "What was not sent of gradients can only be restored for the same gradients. Received: "
                f"{_described(arrays.own)}; the step has {_described(self.shapes.own)}. Restore the checkpoint of this "
                "model, with the same gradient_dtype and power_sgd_rank, or start anew."
            )
        if list(map(_kind, arrays.common)) != list(map(_kind, self.shapes.common)):
            # Of another rank: that only helps to find the next factors, and is found again.
            arrays = Kept(arrays.own, self._zeros(self.shapes.common))
        self._arrays = arrays
        return arrays

    def give(self, arrays: Kept) -> None:
        """Takes those that a step returned."""
        self._arrays = arrays

    def fetch(self) -> dict[str, np.ndarray]:
        """Returns them for a checkpoint; all tasks call it together."""
        arrays = self._arrays or Kept()
        own = {str(i): fetched(self._replicas, array) for i, array in enumerate(arrays.own)}
        return own | {f"{_COMMON}{i}": fetched(self._replicas, array)[0] for i, array in enumerate(arrays.common)}

    def restore(self, values: Mapping[str, Any]) -> None:
        """Takes over what `fetch` has returned, there or for another number of replicas; all tasks call it together.

        Args:
            values: The chief's count; empty for zeros.

        Raises:
            CheckpointError: If they are something else.
        """
        runtime = self._replicas.runtime
        mine = _in_order(values) if runtime.is_chief else Kept()
        count = runtime.all_gather_object(f"how much {_WHAT}", len(mine.own))[0]
        arrays = self._rows.of_chief(_WHAT, [*mine.own, *mine.common])
        own = tuple(self._rows.placed(self._divided(v)) for v in arrays[:count])
        common = tuple(self._rows.placed(self._repeated(v)) for v in arrays[count:])
        self._arrays = Kept(own, common) if own or common else None

    def _divided(self, value: np.ndarray) -> np.ndarray:
        """What each replica gets. Only the sum counts, and other replicas share it."""
        count = self._replicas.count
        if len(value) == count:
            return value
        return self._repeated(value.sum(0, dtype=value.dtype) / np.asarray(count, value.dtype))

    def _repeated(self, value: np.ndarray) -> np.ndarray:
        return np.broadcast_to(value, (self._replicas.count, *value.shape))

    def _zeros(self, shapes: Sequence[Any]) -> tuple[jax.Array, ...]:
        return tuple(self._rows.placed(np.zeros(s.shape, s.dtype)) for s in shapes)


def _traced(replicas: Replicas, step: Step, state: Any, batch: Any) -> Kept:
    """What `Compensation.after` would be."""
    found: list[Kept] = []

    def once(state: Any, data: Any) -> tuple[()]:
        with compensating(None) as compensation:
            step(state, data)
        found.append(jax.tree.map(lambda r: jax.ShapeDtypeStruct(r.shape, r.dtype), compensation.after))
        return ()

    shares = jax.tree.map(lambda a: PartitionSpec(AXIS) if a.ndim else PartitionSpec(), batch)
    whole = PartitionSpec()
    run = jax.shard_map(once, mesh=replicas.mesh, in_specs=(whole, shares), out_specs=whole, check_vma=False)
    jax.eval_shape(run, state, batch)
    return found[0]


def _in_order(values: Mapping[str, Any]) -> Kept:
    common = sum(name.startswith(_COMMON) for name in values)
    names = [str(i) for i in range(len(values) - common)], [f"{_COMMON}{i}" for i in range(common)]
    found = Kept(*(tuple(np.asarray(values[name]) for name in part if name in values) for part in names))
    is_whole = sum(map(len, found)) == len(values) and all(v.ndim for v in found.own)
    if not is_whole or any(v.dtype.kind != "f" for v in (*found.own, *found.common)):
        kinds = {name: f"{np.asarray(v).dtype}{np.shape(v)}" for name, v in list(values.items())[:5]}
        raise CheckpointError(
            "What was not sent of gradients is saved as arrays of floats with a first axis of replicas, named "
            f'"0", "1", and so on, and what all replicas have alike as "{_COMMON}0", and so on. Received: {kinds}. '
            "Pass what was saved, or nothing."
        )
    return found


def _described(arrays: Sequence[Any]) -> str:
    kinds = [f"{np.dtype(a.dtype)}{tuple(a.shape)}" for a in arrays[:5]]
    return f"{len(arrays)} ({', '.join(kinds)}{', ...' if len(arrays) > 5 else ''})"
