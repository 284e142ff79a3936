"""State on the replicas between steps: a pytree of arrays that steps take and give, and the local copies made of it."""

from __future__ import annotations

import contextlib
import hashlib
import weakref
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import jax

from lockstep._engine.step.protocol import Program
from lockstep._engine.step.zero1 import OptimizerStateGather

_Program = TypeVar("_Program", bound=Program)


class LocalCopies:
    """The local copy that each Keras variable holds of an array on the replicas.

    A variable that still holds that very copy has not been assigned to since, and its array on the replicas is good.
    """

    def __init__(self) -> None:
        # By id, because variables compare by value: a weak reference, the local copy, the array on the replicas.
        self._copies: dict[int, tuple[Any, Any, jax.Array]] = {}

    def __contains__(self, variable: Any) -> bool:
        return id(variable) in self._copies

    def remember(self, variable: Any, local: Any, placed: jax.Array) -> None:
        """Notes that a variable holds `local`, a copy of `placed`."""
        key = id(variable)
        known = self._copies.get(key)
        # Python gives the id of a variable that is gone to another one.
        lives = known[0] if known else weakref.ref(variable, lambda _: self._copies.pop(key, None))
        self._copies[key] = lives, local, placed

    def placed(self, variable: Any, local: Any) -> jax.Array | None:
        """Returns the array on the replicas behind a variable that holds `local`; `None` if it was assigned to."""
        _, known, placed = self._copies.get(id(variable), (None, None, None))
        return placed if known is not None and known is local else None

    def forget(self, variable: Any) -> None:
        """Drops the array on the replicas."""
        self._copies.pop(id(variable), None)


class ReplicatedState(Generic[_Program]):
    """A pytree of arrays on the replicas, which a step consumes and returns.

    Leaves, numbered as by `jax.tree.leaves`, are replicated; or sharded (ZeRO-1), if they are the optimizer's and
    `program.optimizer_sharding` says so: then each worker has a shard of each, and only all together can gather it.

    Args:
        shapes: The state as `jax.ShapeDtypeStruct`s.

    Attributes:
        sharded: The numbers of the sharded leaves.
    """

    def __init__(self, program: _Program, shapes: Any) -> None:
        self._program = program
        self._shapes = shapes
        slots = program.optimizer_sharding
        axes = [] if slots is None else slots.axes(shapes)
        self.sharded = frozenset(i for i, axis in enumerate(axes) if axis is not None)
        self._reading = OptimizerStateGather(program.runtime, self._collect)
        self._values: Any = None

    def take(self) -> Any:
        """Returns the state for a step, which donates its buffers."""
        if self.sharded:
            self._reading.begin()
        return self._values

    def give(self, state: Any) -> None:
        """Stores the state that a step returned."""
        self._values = state

    def shapes(self) -> Any:
        """Returns the shapes and dtypes of the state."""
        return self._shapes

    def compiled(self) -> list[str]:
        """Returns a short digest of each step that was compiled for it before."""
        return self._program.compiled()

    def signature(self) -> dict[str, str]:
        """Returns dtype and shape of each array by its name."""
        named, _ = jax.tree_util.tree_flatten_with_path(self._shapes)
        return {jax.tree_util.keystr(path): f"{a.dtype}{tuple(a.shape)}" for path, a in named}

    def digest(self) -> str:
        """Returns a short text that is equal if and only if the signatures are."""
        # Not `hash`, which Python salts: the digests of two processes are compared.
        return hashlib.sha256(repr(self.signature()).encode()).hexdigest()

    def attached(self) -> contextlib.AbstractContextManager[None]:
        """Encloses the steps of an epoch."""
        return contextlib.nullcontext()

    def sync(self) -> None:
        """Updates copies outside of this object; there are none unless a subclass has some."""

    def flush(self, ends: bool) -> None:
        """Combines what local SGD still holds per replica: everything if training `ends`, else metrics; collective."""
        self.give(self._program.synchronize(self.take(), ends))
        self.sync()

    # ---- Sharded leaves: every worker passes the same sync points, and any of them may read there ----

    def sync_point(self) -> None:
        """Waits for workers that may still read sharded leaves; all workers call it in the same places."""
        self._reading.sync_point()

    def gather(self) -> None:
        """Gathers sharded leaves, for any worker to read; a collective call."""
        self._reading.gather()

    def _collect(self) -> None:
        """Gathers sharded leaves into this process' memory; a collective call."""

    # ---- Leaves ----

    def _place(self, number: int, value: Any) -> jax.Array:
        """Places a leaf of which each process has the same whole."""
        slots = self._program.optimizer_sharding
        if slots is None or number not in self.sharded:
            return self._program.place_state(value)
        return slots.place(value)

    def _place_from_chief(self, number: int, value: Any) -> jax.Array:
        """Places a leaf; a sharded one with the chief's content, which is a collective call."""
        slots = self._program.optimizer_sharding
        if slots is None or number not in self.sharded:
            return self._program.place_state(value)
        return slots.place_from_chief(value)

    def _local(self, number: int, value: jax.Array) -> Any:
        """Returns this process' copy of a leaf; a collective call for a sharded one."""
        slots = self._program.optimizer_sharding
        if slots is None or number not in self.sharded:
            return self._program.local(value)
        return slots.gather_to_host(value)

    def _follow_chief(self, leaves: Sequence[Any]) -> list[Any]:
        """Returns leaves with the chief's content of the replicated ones; a collective call."""
        replicated = [i for i in range(len(leaves)) if i not in self.sharded]
        placed = self._program.agree_on_state([leaves[i] for i in replicated])
        chiefs = dict(zip(replicated, placed, strict=True))
        return [chiefs.get(i, leaf) for i, leaf in enumerate(leaves)]
