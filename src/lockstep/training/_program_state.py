"""The state of a user's own as the state of a step program, between steps."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._engine.step.program import StepProgram
from lockstep._engine.step.zero1 import OptimizerStateGather
from lockstep.errors import CheckpointError
from lockstep.training._program_layout import Layout

PREFIX = "state/"


class ProgramState:
    """Holds the arrays of a state on the replicas.

    Args:
        program: The step program.
        layout: What the state looks like.
        arrays: Its arrays; they are copied, so that a step that consumes them leaves the caller's alone.

    Attributes:
        global_step: How many steps have been made.
    """

    def __init__(self, program: StepProgram, layout: Layout, arrays: Sequence[Any]) -> None:
        self._program = program
        self._layout = layout
        own = [_copied(program, a) for a in arrays]
        self._shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in own]
        slots, runtime = program.optimizer_sharding, program.runtime
        axes = [None] * len(own) if slots is None else slots.axes(self._shapes)
        # What is divided among workers is the chief's, and waits for `follow_chief`.
        self._divided = [i for i, axis in enumerate(axes) if axis is not None]
        self._given = {i: own[i] for i in self._divided}
        self._held = [a if i in self._given else program.place_state(a) for i, a in enumerate(own)]
        self._reading = OptimizerStateGather(runtime, self._collect)
        # Of what is divided, what was put together since the last step.
        self._whole: dict[int, np.ndarray[Any, Any]] = {}
        self.global_step = 0
        if runtime.is_alone:
            self._divide()

    def take(self) -> list[jax.Array]:
        """Hands the state to a step, which consumes it."""
        if self._divided:
            self._reading.begin()
            self._whole = {}
        return self._held

    def give(self, state: Any) -> None:
        """Takes the state that a step returned."""
        self._held = state

    def shapes(self) -> list[jax.ShapeDtypeStruct]:
        """What a step takes, as shapes and types."""
        return list(self._shapes)

    def local(self) -> Any:
        """Returns the state, of this process' copies; they are the caller's, and last.

        One task may call it where all `sync_point`.
        """
        return self._layout.state([jnp.array(a) for a in self._values()])

    def sync_point(self) -> None:
        """Waits for tasks that may still read; all tasks call it in the same places."""
        self._reading.sync_point()

    def together(self) -> None:
        """Puts together what lies in parts on several workers, for any of them to read; all tasks call it together."""
        self._reading.gather()

    def _values(self) -> list[Any]:
        if self._divided and not self._whole:
            self._reading.read()
            self._collect()
        return [self._whole[i] if i in self._whole else self._program.local(a) for i, a in enumerate(self._held)]

    def _collect(self) -> None:
        slots = self._program.optimizer_sharding
        if slots is not None and not self._whole:
            self._whole = {i: slots.gather_to_host(self._held[i]) for i in self._divided}

    def _divide(self) -> None:
        """Divides the chief's values, where there are new ones; all tasks call it together."""
        slots = self._program.optimizer_sharding
        if slots is not None and self._divided:
            for i in self._divided:
                own = self._given.get(i)
                shape = self._shapes[i]
                self._held[i] = slots.place_from_chief(jnp.zeros(shape.shape, shape.dtype) if own is None else own)
            self._given, self._whole = {}, {}

    def signature(self) -> dict[str, str]:
        """Name, dtype and shape of each array, and the static leaves."""
        arrays = zip(self._layout.array_names, self._shapes, strict=True)
        return {name: f"{a.dtype}{tuple(a.shape)}" for name, a in arrays}

    def digest(self) -> str:
        """A short text that is equal if and only if the signatures are."""
        return hashlib.sha256(repr(self.signature()).encode()).hexdigest()

    def compiled(self) -> list[str]:
        """A short digest of each step that was compiled for it before."""
        return self._program.compiled()

    def has_changed(self) -> bool:
        """It comes from the caller: whether it is the chief's, nobody knows."""
        return True

    def changes(self) -> int:
        """Nobody but steps changes it."""
        return 0

    def follow_chief(self, everything: bool = True) -> None:
        """Makes the chief's values everyone's, on all tasks at once."""
        del everything
        whole = [i for i in range(len(self._held)) if i not in self._divided]
        agreed = self._program.agree_on_state([self._held[i] for i in whole])
        for i, value in zip(whole, agreed, strict=True):
            self._held[i] = value
        self._divide()
        self._collect()  # Who reads before the first step reads alone, maybe.

    def arrays(self, starts: tuple[str, ...] = ("",)) -> dict[str, Any]:
        """Returns this process' copies by name, for a checkpoint: all, or none; all tasks call it together."""
        if not PREFIX.startswith(starts):
            return {}
        self.together()
        names = (PREFIX + name for name in self._layout.array_names)
        return dict(zip(names, self._values(), strict=True))

    def assign(self, arrays: Mapping[str, Any]) -> None:
        """Takes the values of a checkpoint.

        Raises:
            CheckpointError: If it is of another state.
        """
        found = [jnp.asarray(a) for a in checked(self._layout, self._shapes, arrays)]
        self._given = {i: found[i] for i in self._divided}
        self._held = [a if i in self._given else self._program.place_state(a) for i, a in enumerate(found)]
        if self._program.runtime.is_alone:
            self._divide()


def _copied(program: StepProgram, value: Any) -> jax.Array:
    """A copy; of what lies in parts, the whole."""
    slots = program.optimizer_sharding
    if slots is not None and isinstance(value, jax.Array) and slots.is_divided(value):
        return jnp.asarray(slots.gather_to_host(value))
    return jnp.array(value)


def checked(layout: Layout, like: Sequence[Any], arrays: Mapping[str, Any]) -> list[Any]:
    """Returns the values of a checkpoint in the order of a state's arrays.

    Raises:
        CheckpointError: If it lacks one, holds others, or one has another shape or type.
    """
    names = [PREFIX + name for name in layout.array_names]
    there = {k: a for k, a in arrays.items() if k.startswith(PREFIX)}
    strangers = sorted(there.keys() - set(names)) + sorted(set(names) - there.keys())
    if strangers:
        name = strangers[0]
        where = "is in the checkpoint only" if name in there else "is missing from the checkpoint"
        raise _another(f"{name.removeprefix(PREFIX)} {where}")
    for name, mine in zip(names, like, strict=True):
        theirs = there[name]
        if (theirs.shape, theirs.dtype) != (mine.shape, mine.dtype):
            kinds = f"{theirs.dtype}{tuple(theirs.shape)} in the checkpoint, and {mine.dtype}{tuple(mine.shape)} here"
            raise _another(f"{name.removeprefix(PREFIX)} is {kinds}")
    return [there[name] for name in names]


def _another(what: str) -> CheckpointError:
    return CheckpointError(
        f"A checkpoint is restored into a state like the one it was made of: {what}. Make the same state, or begin "
        "anew in another directory."
    )
