"""Error feedback: gradients travel in fewer bytes, and what was not sent of them is added to the next ones.

There are two ways to send less: a narrower type (`bf16_compression`), and thin factors (`powersgd`). With both, each
replica keeps the residual of its gradient, what the others were not sent, and adds it to its next gradient.

Residuals are a part of the training's state, but not of the model's: nobody else has a use for them, and how many there
are depends on the replicas. A step program keeps them, and hands them to the step while it is traced.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lockstep._engine.step import backends, bf16_compression, powersgd
from lockstep._engine.step.batches import Split
from lockstep._engine.step.compiler import PER_REPLICA, WHOLE, Adapter, Carried, on_each_replica
from lockstep._engine.step.jaxprs import current_trace
from lockstep._engine.step.placement import ReplicaRows, gather_to_host
from lockstep._engine.step.protocol import Step, Update
from lockstep._engine.step.reduction import Reduction
from lockstep._engine.step.replicas import Replicas
from lockstep._types import Array, Batch, PyTree, State
from lockstep.errors import ArgumentError, CheckpointError, UnsupportedError

# By thread: jax traces on the thread that calls it, and two may trace at a time.
_tracing = threading.local()
# The names in checkpoints of what all replicas have alike begin so.
_COMMON = "common/"
_TOPIC = "was not sent of gradients"


class Residuals(NamedTuple):
    """Arrays, or shapes and dtypes, that are kept from one step to the next.

    Attributes:
        own: Each replica's. Only the sum over the replicas counts, so that other replicas can share it.
        common: The same on all replicas: factors from which the next step starts.
    """

    own: tuple[Any, ...] = ()
    common: tuple[Any, ...] = ()


class _Ways(NamedTuple):
    """Which gradients travel how, by their indices."""

    factored: list[int]
    narrowed: list[int]
    plain: list[int]


def _choose_ways(reduction: Reduction, values: Sequence[jax.Array]) -> _Ways:
    ways = _Ways([], [], [])
    for i, value in enumerate(values):
        # Factors win over a narrower type: they save more, and their sums keep full precision.
        if reduction.rank and powersgd.gains(value, reduction.rank):
            ways.factored.append(i)
        elif reduction.wire is not None and bf16_compression.narrows(value):
            ways.narrowed.append(i)
        else:
            ways.plain.append(i)
    return ways


def residual_shapes(reduction: Reduction, values: Sequence[jax.Array]) -> Residuals:
    """Returns shapes and dtypes of what is kept for gradients: of `own` one for each that is compressed, in order.

    `common` holds how many steps there were, as far as that counts, and a factor of each gradient that has them.
    """
    ways = _choose_ways(reduction, values)

    def residual_of(i: int) -> jax.ShapeDtypeStruct:
        value = values[i]
        return jax.ShapeDtypeStruct(value.shape, powersgd.factor_dtype(value) if i in ways.factored else value.dtype)

    own = tuple(residual_of(i) for i in sorted((*ways.factored, *ways.narrowed)))
    steps = (jax.ShapeDtypeStruct((), jnp.dtype(jnp.float32)),) if ways.factored and reduction.whole_steps else ()
    factors = [
        jax.ShapeDtypeStruct(powersgd.factor_shape(values[i], reduction.rank), powersgd.factor_dtype(values[i]))
        for i in ways.factored
    ]
    return Residuals(own, (*steps, *factors))


def sum_compressed(
    reduction: Reduction, values: Sequence[jax.Array], before: Residuals, axis: str, replicas: int
) -> tuple[list[jax.Array], Residuals]:
    """Returns the sums of gradients over `axis`, the same bits on all replicas, and the new residuals."""
    ways = _choose_ways(reduction, values)
    own = dict(zip(sorted((*ways.factored, *ways.narrowed)), before.own, strict=True))
    sums = dict(zip(ways.plain, reduction.sum([values[i] for i in ways.plain], axis, replicas), strict=True))
    common = before.common
    if ways.narrowed:
        narrow = [values[i] for i in ways.narrowed], [own[i] for i in ways.narrowed]
        totals, after = bf16_compression.sum_narrowed(reduction, *narrow, axis, replicas)
        sums.update(zip(ways.narrowed, totals, strict=True))
        own.update(zip(ways.narrowed, after, strict=True))
    if ways.factored:
        wide = [values[i] for i in ways.factored]
        kept = Residuals(tuple(own[i] for i in ways.factored), common)
        totals, (after, common) = _sum_factored(reduction, wide, kept, axis, replicas)
        sums.update(zip(ways.factored, totals, strict=True))
        own.update(zip(ways.factored, after, strict=True))
    return [sums[i] for i in range(len(values))], Residuals(tuple(own[i] for i in sorted(own)), common)


def _sum_factored(
    reduction: Reduction, values: Sequence[jax.Array], before: Residuals, axis: str, replicas: int
) -> tuple[list[jax.Array], Residuals]:
    """Sums by factors, after the steps in which gradients travel whole."""

    def by_factors(values: Sequence[jax.Array], kept: Residuals) -> tuple[list[jax.Array], Residuals]:
        sums, own, factors = powersgd.sum_factored(reduction, values, *kept, axis, replicas)
        return sums, Residuals(tuple(own), tuple(factors))

    if not reduction.whole_steps:
        return by_factors(values, before)
    steps, *factors = before.common
    # Each branch has collectives of its own. The count is the same on all replicas, so that all take the same branch;
    # in different ones they would wait for each other for ever.
    sums, (own, after) = lax.cond(
        steps < reduction.whole_steps,
        lambda values, kept: (reduction.sum(values, axis, replicas), kept),
        by_factors,
        *(list(values), Residuals(before.own, tuple(factors))),
    )
    # It goes no further than it counts: float32 has no larger numbers that are whole.
    return sums, Residuals(own, (jnp.minimum(steps + 1, reduction.whole_steps), *after))


class Compensation:
    """The residuals of one replica in one step, while the step is traced.

    Args:
        before: From the last step, for all gradients in the order in which the step adds them up; `None` to find out
            what there is.

    Attributes:
        after: For the next step.
    """

    def __init__(self, before: Residuals | None) -> None:
        self._before = before
        self._trace = current_trace()
        self.after = Residuals()

    def sum(self, reduction: Reduction, values: Sequence[jax.Array], axis: str, replicas: int) -> list[jax.Array]:
        """Returns the sums of gradients over `axis`; those that nothing makes shorter go as they are."""
        if current_trace() != self._trace:
            raise UnsupportedError(
                "With gradient_dtype or power_sgd_rank gradients must be averaged at the top of a training step, where "
                "what has not been sent can be kept for the next one. Received: an optimizer that is applied inside of "
                "a loop, a condition or a jitted function. Apply it outside, or leave these options out."
            )
        wanted = residual_shapes(reduction, values)
        before = Residuals(*map(self._take_next, Residuals._fields, wanted))
        sums, after = sum_compressed(reduction, values, before, axis, replicas)
        self.after = Residuals(self.after.own + after.own, self.after.common + after.common)
        return sums

    def _take_next(self, field: str, wanted: Sequence[Any]) -> tuple[jax.Array, ...]:
        """Returns the arrays of these shapes and dtypes that are next in order."""
        if self._before is None:
            return tuple(jnp.zeros(w.shape, w.dtype) for w in wanted)
        start = len(getattr(self.after, field))
        arrays = getattr(self._before, field)[start : start + len(wanted)]
        if list(map(_kind, arrays)) != list(map(_kind, wanted)):
            raise _other_gradients()
        return arrays

    def check_all_used(self) -> None:
        """Raises `ArgumentError` unless the residuals of all gradients have been added."""
        if self._before is not None and jax.tree.structure(self.after) != jax.tree.structure(self._before):
            raise _other_gradients()


def _other_gradients() -> ArgumentError:
    return ArgumentError(
        "With gradient_dtype or power_sgd_rank every step must have gradients of the same number, shapes and types: "
        "what was not sent of them is added in the next one. Received a step with others. Compile the model again "
        "after layers were frozen or added, and apply the same optimizers in each step."
    )


def _kind(array: Array) -> tuple[Any, ...]:
    return tuple(array.shape), np.dtype(array.dtype)


@contextlib.contextmanager
def compensating(before: Residuals | None) -> Generator[Compensation]:
    """Opens a context in which gradients that are averaged are compensated by residuals; see `Compensation`."""
    outer: Compensation | None = getattr(_tracing, "current", None)
    _tracing.current = Compensation(before)
    try:
        yield _tracing.current
    finally:
        _tracing.current = outer


def exploring() -> contextlib.AbstractContextManager[Compensation]:
    """Opens a context in which a step can be traced to look at it; what is taken from its gradients is not kept."""
    return compensating(None)


def current() -> Compensation:
    """Returns the residuals of the step that is being traced."""
    compensation: Compensation | None = getattr(_tracing, "current", None)
    assert compensation is not None, "gradients are compensated in training steps of a step program"
    return compensation


class ErrorFeedback(Adapter):
    """Carries the residuals of all replicas between the steps of a program: zeros at first.

    Batches that the replicas cannot divide evenly run in the global view, where gradients travel as they are; they
    leave the residuals alone.

    Attributes:
        shapes: Shapes and dtypes; each has a first axis of replicas. `None` as long as no step has been traced.
    """

    def __init__(self, replicas: Replicas, replica_step: Step | None = None, update: Update | None = None) -> None:
        super().__init__(replicas, replica_step, update)
        self._residuals: Residuals | None = None
        self.shapes: Residuals | None = None
        self._rows = ReplicaRows(replicas)

    def wrap(self, state: State, split: Split, batch: Callable[[], Batch]) -> Carried:
        """Hands the residuals to a step, which consumes them."""
        if split is not Split.EVEN:
            return state, ()
        shapes = self._shapes_for(state, batch)
        if shapes is None:
            return state, ()
        residuals = self._residuals or Residuals(self._zeros(shapes.own))
        if list(map(_kind, residuals.own)) != list(map(_kind, shapes.own)):
            raise CheckpointError(
                "What was not sent of gradients can only be restored for the same gradients. Received: "
                f"{_describe(residuals.own)}; the step has {_describe(shapes.own)}. Restore the checkpoint of this "
                "model, with the same gradient_dtype and power_sgd_rank, or start anew."
            )
        if list(map(_kind, residuals.common)) != list(map(_kind, shapes.common)):
            # Of another rank: that only helps to find the next factors, and is found again.
            residuals = Residuals(residuals.own, self._zeros(shapes.common))
        self._residuals = residuals
        return state, residuals

    def wrap_shapes(self, state: State, split: Split, batch: Batch) -> Carried:
        """Returns shapes and dtypes of what `wrap` would return."""
        return state, self._shapes_for(state, lambda: batch) if split is Split.EVEN else ()

    def unwrap(self, carried: Carried, steps: int) -> State:
        """Takes the residuals that a step has returned; returns the state."""
        del steps
        # A batch that does not divide carries none, and must not drop those of the last one that did.
        if carried[1]:
            self._residuals = carried[1]
        return carried[0]

    def carry_replica(self, step: Step) -> Step:
        """Returns a replica's step of (state, residuals with a first axis of length 1)."""

        def compensated(carried: Carried, batch: Batch) -> tuple[PyTree, Carried]:
            state, residuals = carried
            with compensating(jax.tree.map(lambda r: r[0], residuals) or None) as compensation:
                outputs, after = step(state, batch)
            compensation.check_all_used()
            return outputs, (after, jax.tree.map(lambda r: r[None], compensation.after))

        return compensated

    def _shapes_for(self, state: State, batch: Callable[[], Batch]) -> Residuals | None:
        """Returns shapes and dtypes, by a trace of the replica's step if they are not known yet."""
        step = self._replica_step
        if self.shapes is not None or step is None:
            return self.shapes
        backends.begin_program()
        traced: list[Residuals] = []

        def explore(state: State, batch: Batch) -> tuple[()]:
            with exploring() as compensation:
                step(state, batch)
            # By way of a list: what `eval_shape` returns are shapes over all replicas, and these are of one.
            traced.append(jax.tree.map(lambda r: jax.ShapeDtypeStruct(r.shape, r.dtype), compensation.after))
            return ()

        shapes = batch()
        specs = jax.tree.map(lambda a: PER_REPLICA if a.ndim else WHOLE, shapes)
        jax.eval_shape(on_each_replica(self._replicas, explore, (WHOLE, specs), WHOLE), state, shapes)
        self.note_shapes(traced[0])
        return self.shapes

    def note_shapes(self, of_replica: Residuals) -> bool:
        """Takes note of what one replica keeps; returns whether that is news."""
        count = self._replicas.count
        shapes = Residuals(
            *(tuple(jax.ShapeDtypeStruct((count, *r.shape), r.dtype) for r in part) for part in of_replica)
        )
        is_news = self.shapes != shapes
        self.shapes = shapes
        return is_news and bool(jax.tree.leaves(shapes))

    def extra_state(self) -> dict[str, np.ndarray]:
        """Returns the residuals for a checkpoint; all tasks call it together."""
        own, common = self._residuals or Residuals()
        arrays = {str(i): gather_to_host(self._replicas, array) for i, array in enumerate(own)}
        # What all replicas have alike lies there once for each of them; one copy says all.
        return arrays | {f"{_COMMON}{i}": gather_to_host(self._replicas, array)[0] for i, array in enumerate(common)}

    def restore_extra_state(self, values: Mapping[str, Any]) -> None:
        """Takes over residuals, saved here or by another number of replicas; all tasks call it together.

        Args:
            values: The chief's count; empty for zeros.
        """
        runtime = self._replicas.runtime
        mine = _sort_saved(values) if runtime.is_chief else Residuals()
        count = runtime.all_gather_object(f"how much {_TOPIC}", len(mine.own))[0]
        arrays = self._rows.broadcast_from_chief(_TOPIC, [*mine.own, *mine.common])
        own = tuple(self._rows.place(self._share(v)) for v in arrays[:count])
        common = tuple(self._rows.place(self._repeat(v)) for v in arrays[count:])
        self._residuals = Residuals(own, common) if own or common else None

    def _share(self, value: np.ndarray) -> np.ndarray:
        # Only the sum counts: other replicas get equal parts of it.
        count = self._replicas.count
        if len(value) == count:
            return value
        return self._repeat(value.sum(0, dtype=value.dtype) / np.asarray(count, value.dtype))

    def _repeat(self, value: np.ndarray) -> np.ndarray:
        return np.broadcast_to(value, (self._replicas.count, *value.shape))

    def _zeros(self, shapes: Sequence[Any]) -> tuple[jax.Array, ...]:
        return tuple(self._rows.place(np.zeros(s.shape, s.dtype)) for s in shapes)


def gradient_adapter(
    replicas: Replicas, replica_step: Step | None = None, update: Update | None = None
) -> Adapter | ErrorFeedback:
    """Returns the adapter of a step whose gradients travel as the strategy's options say."""
    compresses = replicas.reduction is not None and replicas.reduction.compresses
    return (ErrorFeedback if compresses else Adapter)(replicas, replica_step, update)


def _sort_saved(values: Mapping[str, Any]) -> Residuals:
    common = sum(name.startswith(_COMMON) for name in values)
    names = [str(i) for i in range(len(values) - common)], [f"{_COMMON}{i}" for i in range(common)]
    residuals = Residuals(*(tuple(np.asarray(values[name]) for name in part if name in values) for part in names))
    is_whole = sum(map(len, residuals)) == len(values) and all(v.ndim for v in residuals.own)
    if not is_whole or any(v.dtype.kind != "f" for v in (*residuals.own, *residuals.common)):
        kinds = {name: f"{np.asarray(v).dtype}{np.shape(v)}" for name, v in list(values.items())[:5]}
        raise CheckpointError(
            "What was not sent of gradients is saved as arrays of floats with a first axis of replicas, named "
            f'"0", "1", and so on, and what all replicas have alike as "{_COMMON}0", and so on. Received: {kinds}. '
            "Pass what was saved, or nothing."
        )
    return residuals


def _describe(arrays: Sequence[Array]) -> str:
    kinds = [f"{np.dtype(a.dtype)}{tuple(a.shape)}" for a in arrays[:5]]
    return f"{len(arrays)} ({', '.join(kinds)}{', ...' if len(arrays) > 5 else ''})"
