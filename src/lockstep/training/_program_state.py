"""The state of a user's own as the state of a step program, between steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._engine.step import zero1 as slots_
from lockstep._engine.step.placement import gather_to_host, local_copy
from lockstep._engine.step.program import StepProgram
from lockstep._engine.step.replicas import Replicas
from lockstep._engine.step.state import ReplicatedState
from lockstep.errors import ArgumentError, CheckpointError
from lockstep.training._program_layout import Layout

PREFIX = "state/"
_EXAMPLE = 'Example: Program(step, strategy, optimizer_state=lambda state: state["optimizer"])'


class ProgramState(ReplicatedState[StepProgram]):
    """Holds the arrays of a state on the replicas.

    Args:
        arrays: Its arrays; they are copied, so that a step that donates them leaves the caller's alone.

    Attributes:
        global_step: How many steps have been made.
    """

    def __init__(self, program: StepProgram, layout: Layout, arrays: Sequence[Any]) -> None:
        self._layout = layout
        slots = program.optimizer_sharding
        copies: list[jax.Array] = []
        for array in arrays:
            # A caller may pass the sharded state that a step returned.
            is_sharded = slots is not None and isinstance(array, jax.Array) and slots.is_divided(array)
            copies.append(
                jnp.asarray(slots.gather_to_host(array)) if slots is not None and is_sharded else jnp.array(array)
            )
        super().__init__(program, [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in copies])
        # Of sharded arrays: the whole as gathered since the last step; and values that are not on the replicas yet,
        # because only the chief's count, and workers compare the state first.
        self._gathered: dict[int, np.ndarray[Any, Any]] = {}
        self._unplaced: dict[int, Any] = {}
        self.global_step = 0
        self._set(copies)

    def take(self) -> Any:
        """Returns the state for a step, which donates its buffers."""
        if self.sharded:
            self._gathered = {}
        return super().take()

    def local(self) -> Any:
        """Returns the state as arrays of this process, which are the caller's.

        One worker may call it where all come to a sync point.
        """
        # Copies: the next step donates the buffers behind local arrays.
        return self._layout.state([jnp.array(a) for a in self._local_values()])

    def signature(self) -> dict[str, str]:
        """Returns name, dtype and shape of each array."""
        arrays = zip(self._layout.array_names, self._shapes, strict=True)
        return {name: f"{a.dtype}{tuple(a.shape)}" for name, a in arrays}

    def has_changed(self) -> bool:
        """Returns `True`: it comes from the caller, and may not be the chief's."""
        return True

    def changes(self) -> int:
        """Returns 0: only steps change it."""
        return 0

    def follow_chief(self, everything: bool = True) -> None:
        """Broadcasts the chief's values; a collective call."""
        del everything
        self._values = self._follow_chief(self._values)
        self._shard()
        self._collect()  # A read before the first step may be of one worker alone.

    def arrays(self, starts: tuple[str, ...] = ("",)) -> dict[str, Any]:
        """Returns this process' copies by name, for a checkpoint: all, or none; a collective call."""
        if not PREFIX.startswith(starts):
            return {}
        self.gather()
        names = (PREFIX + name for name in self._layout.array_names)
        return dict(zip(names, self._local_values(), strict=True))

    def assign(self, arrays: Mapping[str, Any]) -> None:
        """Sets the values of a checkpoint.

        Raises:
            CheckpointError: If it is of another state.
        """
        self._set([jnp.asarray(a) for a in in_order(self._layout, self._shapes, arrays)])

    def _set(self, arrays: list[jax.Array]) -> None:
        self._unplaced = {i: arrays[i] for i in self.sharded}
        self._values = [a if i in self._unplaced else self._place(i, a) for i, a in enumerate(arrays)]
        # With others `follow_chief` shards, which they all call; a checkpoint is assigned on the chief alone.
        if self._program.runtime.is_alone:
            self._shard()

    def _shard(self) -> None:
        """Shards the chief's values, where there are new ones; a collective call."""
        # Sorted: each is a collective operation, which all tasks must come to in one order, and a set has none.
        for number in sorted(self.sharded):
            # Where the chief's are the only new values, others take part with any content.
            shape = self._shapes[number]
            value = self._unplaced.get(number)
            value = jnp.zeros(shape.shape, shape.dtype) if value is None else value
            self._values[number] = self._place_from_chief(number, value)
        self._unplaced, self._gathered = {}, {}

    def _local_values(self) -> list[Any]:
        if self.sharded and not self._gathered:
            self._reading.read()
            self._collect()
        gathered = self._gathered
        return [gathered[i] if i in gathered else self._program.local(a) for i, a in enumerate(self._values)]

    def _collect(self) -> None:
        """Gathers sharded arrays; a collective call."""
        if not self._gathered:
            self._gathered = {i: self._local(i, self._values[i]) for i in sorted(self.sharded)}


def in_order(layout: Layout, like: Sequence[Any], arrays: Mapping[str, Any]) -> list[Any]:
    """Returns the values of a checkpoint in the order of a state's arrays.

    Raises:
        CheckpointError: If it lacks one, holds others, or one has another shape or type.
    """
    names = [PREFIX + name for name in layout.array_names]
    saved = {k: a for k, a in arrays.items() if k.startswith(PREFIX)}
    unmatched = sorted(saved.keys() - set(names)) + sorted(set(names) - saved.keys())
    if unmatched:
        name = unmatched[0]
        where = "is in the checkpoint only" if name in saved else "is missing from the checkpoint"
        raise _other_state(f"{name.removeprefix(PREFIX)} {where}")
    for name, mine in zip(names, like, strict=True):
        theirs = saved[name]
        if (theirs.shape, theirs.dtype) != (mine.shape, mine.dtype):
            kinds = f"{theirs.dtype}{tuple(theirs.shape)} in the checkpoint, and {mine.dtype}{tuple(mine.shape)} here"
            raise _other_state(f"{name.removeprefix(PREFIX)} is {kinds}")
    return [saved[name] for name in names]


def _other_state(difference: str) -> CheckpointError:
    return CheckpointError(
        f"A checkpoint is restored into a state like the one it was made of: {difference}. Make the same state, or "
        "begin anew in another directory."
    )


# ---- Sharded optimizer state (ZeRO-1) ----

PartOf = Callable[[Any], Any]


def check_optimizer_state(part: PartOf | None, view: str, replicas: Replicas) -> PartOf | None:
    """Returns the function that returns the optimizer's part of a state; `None` where nothing is sharded.

    Raises:
        ArgumentError: If it is missing, or no function.
        UnsupportedError: If steps are written for one replica.
    """
    if part is not None and not callable(part):
        raise ArgumentError(f"optimizer_state is a function of a state. Received: {type(part).__name__}. {_EXAMPLE}")
    if not replicas.shards_optimizer_state or replicas.count == 1:
        return None
    if view == "replica":
        slots_.refuse(
            replicas,
            'view="replica", in which each replica computes the whole state',
            "Write the step for the whole batch, and leave view out; or make the strategy without it.",
        )
    if part is None:
        raise ArgumentError(
            "With shard_optimizer_state Program has to know which part of the state is the optimizer's. Received: no "
            f"optimizer_state. {_EXAMPLE}"
        )
    return part


def optimizer_arrays(layout: Layout, part: PartOf) -> frozenset[int]:
    """Returns the numbers of the optimizer's arrays in a state.

    Raises:
        ArgumentError: If there are none.
    """
    names = layout.names_in(part)
    numbers = frozenset(i for i, name in enumerate(layout.array_names) if name in names)
    if not numbers:
        raise ArgumentError(
            "optimizer_state returns the part of a state that is the optimizer's: arrays. Received: a function that "
            f"returns {sorted(names)[:5]} of {layout.names[:10]}. {_EXAMPLE}"
        )
    return numbers


def local_array(replicas: Replicas, value: jax.Array) -> jax.Array:
    """Returns an array on the replicas as one of this process; a collective call for a sharded one."""
    if value.is_fully_replicated:
        return local_copy(value)
    return jax.numpy.asarray(gather_to_host(replicas, value))
