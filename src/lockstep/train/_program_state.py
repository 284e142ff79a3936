"""The state of a user's own as the state of a step program, between steps."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lockstep._step.program import CompiledProgram
from lockstep.errors import CheckpointError
from lockstep.train._program_layout import Layout

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

    def __init__(self, program: CompiledProgram, layout: Layout, arrays: Sequence[Any]) -> None:
        self._program = program
        self._layout = layout
        self._held = [program.place_state(jnp.array(a)) for a in arrays]
        self._shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in self._held]
        self.global_step = 0

    def take(self) -> list[jax.Array]:
        """Hands the state to a step, which consumes it."""
        return self._held

    def give(self, state: Any) -> None:
        """Takes the state that a step returned."""
        self._held = state

    def shapes(self) -> list[jax.ShapeDtypeStruct]:
        """What a step takes, as shapes and types."""
        return list(self._shapes)

    def local(self) -> Any:
        """Returns the state, of this process' copies; they are the caller's, and last."""
        return self._layout.state([jnp.array(self._program.local(a)) for a in self._held])

    def signature(self) -> dict[str, str]:
        """Name, dtype and shape of each array, and the static leaves."""
        arrays = zip(self._layout.array_names, self._shapes, strict=True)
        return {name: f"{a.dtype}{tuple(a.shape)}" for name, a in arrays}

    def digest(self) -> str:
        """A short text that is equal if and only if the signatures are."""
        return hashlib.sha256(repr(self.signature()).encode()).hexdigest()

    def has_changed(self) -> bool:
        """It comes from the caller: whether it is the chief's, nobody knows."""
        return True

    def changes(self) -> int:
        """Nobody but steps changes it."""
        return 0

    def follow_chief(self, everything: bool = True) -> None:
        """Makes the chief's values everyone's, on all tasks at once."""
        del everything
        self._held = self._program.agree_on_state(self._held)

    def arrays(self) -> dict[str, jax.Array]:
        """Returns this process' copies by name, for a checkpoint."""
        names = (PREFIX + name for name in self._layout.array_names)
        return {name: self._program.local(a) for name, a in zip(names, self._held, strict=True)}

    def assign(self, arrays: Mapping[str, Any]) -> None:
        """Takes the values of a checkpoint.

        Raises:
            CheckpointError: If it is of another state.
        """
        found = checked(self._layout, self._shapes, arrays)
        self._held = [self._program.place_state(jnp.asarray(a)) for a in found]


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
