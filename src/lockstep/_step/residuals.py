"""What rounding has taken from gradients: kept by a step program, handed to the step while it is traced.

Each replica has its own residuals. They are a part of the training's state, but not of the model's: nobody else has a
use for them, and how many there are depends on the replicas.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec

from lockstep._step import wire
from lockstep._step.placement import from_chief, local_copy, place_whole
from lockstep._step.reduction import Reduction
from lockstep._step.replicas import AXIS, Replicas
from lockstep._step.tracing import current_trace
from lockstep.errors import ArgumentError, CheckpointError, UnsupportedError

Step = Callable[[Any, Any], tuple[Any, Any]]
_tracing = threading.local()


class Compensation:
    """The residuals of one replica in one step, while the step is traced.

    Args:
        before: From the last step, for each gradient in the order in which the step adds them up; `None` to find out
            what there is.

    Attributes:
        after: For the next step.
    """

    def __init__(self, before: Sequence[jax.Array] | None) -> None:
        self._before = before
        self._trace = current_trace()
        self.after: list[jax.Array] = []

    def sum(self, reduction: Reduction, values: Sequence[jax.Array], axis: str, replicas: int) -> list[jax.Array]:
        """Returns the sums of gradients over `axis`; those that bfloat16 makes no shorter go as they are.

        Raises:
            UnsupportedError: If it is called from inside of a loop, a condition or a jitted function of the step.
            ArgumentError: If the gradients are not those of the last step.
        """
        self._demand_place()
        mine = [i for i, value in enumerate(values) if wire.narrows(value)]
        rest = [i for i, value in enumerate(values) if not wire.narrows(value)]
        before = [self._residual(values[i], len(self.after) + k) for k, i in enumerate(mine)]
        found, after = wire.summed(reduction, [values[i] for i in mine], before, axis, replicas)
        self.after += after
        sums = dict(zip(mine, found, strict=True))
        sums.update(zip(rest, reduction.sum([values[i] for i in rest], axis, replicas), strict=True))
        return [sums[i] for i in range(len(values))]

    def _residual(self, value: jax.Array, number: int) -> jax.Array:
        if self._before is None:
            return jax.numpy.zeros_like(value)
        if number >= len(self._before) or _kind(self._before[number]) != _kind(value):
            raise _other_gradients()
        return self._before[number]

    def _demand_place(self) -> None:
        if current_trace() != self._trace:
            raise UnsupportedError(
                'With gradient_dtype="bfloat16" gradients must be averaged at the top of a training step, where what '
                "rounding takes away can be kept for the next one. Received: an optimizer that is applied inside of a "
                "loop, a condition or a jitted function. Apply it outside, or leave gradient_dtype out."
            )

    def demand_all(self) -> None:
        """Raises `ArgumentError` unless the residuals of all gradients have been used."""
        if self._before is not None and len(self.after) != len(self._before):
            raise _other_gradients()


def _other_gradients() -> ArgumentError:
    return ArgumentError(
        'With gradient_dtype="bfloat16" every step must have gradients of the same number, shapes and types: what '
        "rounding takes from them is added in the next one. Received a step with others. Compile the model again after "
        "layers were frozen or added, and apply the same optimizers in each step."
    )


def _kind(array: Any) -> tuple[Any, ...]:
    return tuple(array.shape), np.dtype(array.dtype)


@contextlib.contextmanager
def _compensating(before: Sequence[jax.Array] | None) -> Generator[Compensation]:
    outer: Compensation | None = getattr(_tracing, "current", None)
    _tracing.current = Compensation(before)
    try:
        yield _tracing.current
    finally:
        _tracing.current = outer


def current() -> Compensation:
    """The residuals of the step that is being traced."""
    found: Compensation | None = getattr(_tracing, "current", None)
    assert found is not None, "gradients are compensated in training steps of a step program"
    return found


def compensated(step: Step) -> Step:
    """Makes of a replica's step of the state one of (state, residuals), each with a first axis of length 1."""

    def both(carried: tuple[Any, Any], data: Any) -> tuple[Any, tuple[Any, Any]]:
        state, residuals = carried
        with _compensating([r[0] for r in residuals]) as compensation:
            outputs, after = step(state, data)
        compensation.demand_all()
        return outputs, (after, tuple(r[None] for r in compensation.after))

    return both


def uncompensated(step: Step) -> Step:
    """Makes of a step of the state one of (state, no residuals)."""

    def both(carried: tuple[Any, Any], data: Any) -> tuple[Any, tuple[Any, Any]]:
        outputs, after = step(carried[0], data)
        return outputs, (after, ())

    return both


class Residuals:
    """The residuals of all replicas between the steps of a program: zeros at first.

    Args:
        replicas: Where it runs.

    Attributes:
        shapes: Shapes and types; each has a first axis of replicas. `None` as long as no step has been traced.
    """

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._arrays: tuple[jax.Array, ...] | None = None
        self.shapes: tuple[jax.ShapeDtypeStruct, ...] | None = None
        self._gather = jax.jit(lambda array: array, out_shardings=replicas.whole)

    def learn(self, step: Step, state: Any, batch: Any) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Finds out what there is, unless that is known.

        Args:
            step: One replica's, of the state.
            state: Arrays, or shapes and types.
            batch: Shapes and types of a global batch that the replicas can divide.
        """
        if self.shapes is None:
            found = _traced(self._replicas, step, state, batch)
            count = self._replicas.count
            self.shapes = tuple(jax.ShapeDtypeStruct((count, *r.shape), r.dtype) for r in found)
        return self.shapes

    def take(self) -> tuple[jax.Array, ...]:
        """Hands them to a step, which consumes them.

        Raises:
            CheckpointError: If those that were restored are of other gradients.
        """
        assert self.shapes is not None
        if self._arrays is None:
            self._arrays = tuple(self._placed(np.zeros(s.shape, s.dtype)) for s in self.shapes)
        if [_kind(a) for a in self._arrays] != [_kind(s) for s in self.shapes]:
            raise CheckpointError(
                "What rounding has taken from gradients can only be restored for the same gradients. Received: "
                f"{_described(self._arrays)}; the step has {_described(self.shapes)}. Restore the checkpoint of this "
                "model, or go on without its residuals."
            )
        return self._arrays

    def give(self, arrays: tuple[jax.Array, ...]) -> None:
        """Takes those that a step returned."""
        self._arrays = arrays

    def fetch(self) -> dict[str, np.ndarray]:
        """Returns them for a checkpoint; all tasks call it together."""
        return {str(i): self._fetched(array) for i, array in enumerate(self._arrays or ())}

    def _fetched(self, array: jax.Array) -> np.ndarray:
        return np.asarray(array if array.is_fully_addressable else local_copy(self._gather(array)))

    def restore(self, values: Mapping[str, Any]) -> None:
        """Takes over what `fetch` has returned, there or for another number of replicas; all tasks call it together.

        Args:
            values: The chief's count; empty for zeros.

        Raises:
            CheckpointError: If they are something else.
        """
        runtime = self._replicas.runtime
        mine = _in_order(values) if runtime.is_chief else []
        kinds = [[list(v.shape), v.dtype.name] for v in mine]
        found = runtime.agree("what rounding has taken from gradients", kinds)[0]
        mine = mine if runtime.is_chief else [np.zeros(shape, dtype) for shape, dtype in found]
        self._arrays = tuple(self._placed(self._divided(self._of_chief(v))) for v in mine) or None

    def _of_chief(self, value: np.ndarray) -> np.ndarray:
        if self._replicas.runtime.is_alone:
            return value
        return np.asarray(local_copy(from_chief(self._replicas, [place_whole(self._replicas, value)])[0]))

    def _divided(self, value: np.ndarray) -> np.ndarray:
        """What each replica gets. Only the sum counts, and other replicas share it."""
        count = self._replicas.count
        if len(value) == count:
            return value
        share = value.sum(0, dtype=value.dtype) / np.asarray(count, value.dtype)
        return np.broadcast_to(share, (count, *share.shape))

    def _placed(self, value: np.ndarray) -> jax.Array:
        parts = [jax.device_put(value[i : i + 1], device) for i, device in self._replicas.local]
        return jax.make_array_from_single_device_arrays(value.shape, self._replicas.by_example, parts)


def _traced(replicas: Replicas, step: Step, state: Any, batch: Any) -> list[Any]:
    """What `Compensation.after` would be."""
    found: list[Any] = []

    def once(state: Any, data: Any) -> tuple[()]:
        with _compensating(None) as compensation:
            step(state, data)
        found.extend(jax.ShapeDtypeStruct(r.shape, r.dtype) for r in compensation.after)
        return ()

    shares = jax.tree.map(lambda a: PartitionSpec(AXIS) if a.ndim else PartitionSpec(), batch)
    whole = PartitionSpec()
    run = jax.shard_map(once, mesh=replicas.mesh, in_specs=(whole, shares), out_specs=whole, check_vma=False)
    jax.eval_shape(run, state, batch)
    return found


def _in_order(values: Mapping[str, Any]) -> list[np.ndarray]:
    found = [np.asarray(values[str(i)]) for i in range(len(values)) if str(i) in values]
    if len(found) < len(values) or not all(v.ndim and v.dtype.kind == "f" for v in found):
        kinds = {name: f"{np.asarray(v).dtype}{np.shape(v)}" for name, v in list(values.items())[:5]}
        raise CheckpointError(
            "What rounding has taken from gradients is saved as arrays of floats with a first axis of replicas, named "
            f'"0", "1", and so on. Received: {kinds}. Pass what was saved, or nothing.'
        )
    return found


def _described(arrays: Sequence[Any]) -> str:
    kinds = [f"{np.dtype(a.dtype)}{tuple(a.shape)}" for a in arrays[:5]]
    return f"{len(arrays)} ({', '.join(kinds)}{', ...' if len(arrays) > 5 else ''})"
