"""What replicas have besides the state that everybody sees, between the steps of a program that trains in rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec

from lockstep._engine.step import backends
from lockstep._engine.step.placement import fetched
from lockstep._engine.step.replica_rows import ReplicaRows
from lockstep._engine.step.replicas import AXIS, Replicas
from lockstep._engine.step.rounds import OWN, Local, Plan, Round, Step
from lockstep.errors import CheckpointError

_COUNT, _MARKS, _MOMENTUM, _OWN = "common/count", "common/marks", "common/momentum/", "own/"
_WHAT = "what replicas have besides the weights"


class LocalState:
    """Holds it, takes over what is changed from outside, and ends rounds.

    In the state that a program hands out, what stays each replica's own has a first axis of replicas; the rest is
    what everybody sees. What comes back changed was changed from outside: all replicas go on with it. Arrays may have
    been through other programs meanwhile, such as an evaluation, so that it is their content that counts.

    A step takes what is common and what is the replica's own, and returns it; it communicates nothing. A round's end is
    a program of its own, which runs between two dispatches: none goes beyond it.

    Args:
        local: How the program trains.
        replicas: Where it runs.
    """

    def __init__(self, local: Local, replicas: Replicas) -> None:
        self._local = local
        self._replicas = replicas
        self._rows = ReplicaRows(replicas)
        self._plan: Plan | None = None
        self._now: Round | None = None
        self._steps = 0
        # The leaves that were handed out; and what was restored, to be used by the next step.
        self._handed_out: list[Any] = []
        self._restored: dict[str, np.ndarray[Any, Any]] = {}
        lies = Round(replicas.whole, replicas.by_example, replicas.by_example, replicas.by_example)  # pyright: ignore[reportArgumentType]
        self._do = jax.jit(self._done, static_argnums=0, donate_argnums=1, out_shardings=lies)

    @property
    def room(self) -> int:
        """How many steps are left of the round."""
        return self._local.rounds.every - self._steps

    def step(self, is_whole: bool) -> Step:
        """Returns one replica's step; a state must have been seen before. See `Plan.step`."""
        assert self._plan is not None
        return self._plan.step(is_whole)

    def shapes(self, state: Any) -> tuple[Any, Any]:
        """Returns shapes and types of what a step takes, for those of a state."""
        plan, leaves = self._planned(state), jax.tree.leaves(state)
        return tuple(leaves[i] for i in plan.common), self._wanted(leaves).own

    def take(self, state: Any) -> tuple[Any, Any]:
        """Hands a step what it takes, which it consumes."""
        plan, leaves = self._planned(state), jax.tree.leaves(state)
        self._now = self._followed(leaves)
        return tuple(leaves[i] for i in plan.common), self._now.own

    def give(self, common: Any, own: Any, steps: int) -> Any:
        """Takes what so many steps returned, and ends the round if that was its last one; returns the state."""
        assert self._now is not None
        self._now = self._now._replace(own=own)
        self._steps += steps
        if self._steps >= self._local.rounds.every:
            self._end()
        return self._state(common)

    def settle(self, state: Any, ends: bool) -> Any:
        """Combines metrics, or ends a round that is under way; all tasks call it together. The state is consumed."""
        if not self._steps:
            return state
        common, _ = self.take(state)
        if ends:
            self._end()
        else:
            self._now = self._do("count", self._now)
        return self._state(common)

    def _end(self) -> None:
        self._now = self._do("end", self._now)
        self._steps = 0

    def _done(self, what: str, now: Round) -> Round:
        """Has each replica carry out a method of the plan."""
        backends.begin_program()
        whole, divided = PartitionSpec(), PartitionSpec(AXIS)
        lies = (Round(whole, divided, divided, divided),)  # pyright: ignore[reportArgumentType]
        do = getattr(self._plan, what)
        return jax.shard_map(do, mesh=self._replicas.mesh, in_specs=lies, out_specs=lies[0], check_vma=False)(now)

    def _state(self, common: Any) -> Any:
        plan, now = self._plan, self._now
        assert plan is not None and now is not None
        shown = dict(zip(plan.own, now.own, strict=True)) | dict(zip(plan.seen, now.seen, strict=True))
        self._handed_out = plan.joined(common, [shown[i] for i in plan.own])
        return jax.tree.unflatten(plan.structure, self._handed_out)

    def visible(self, value: jax.Array) -> jax.Array | None:
        """What this process shows of a leaf that stays each replica's own: its first replica's; `None` for others."""
        return self._rows.row(value) if self._rows.has(value) else None

    def _planned(self, state: Any) -> Plan:
        if self._plan is None:
            self._plan = Plan(self._local, self._replicas, state)
        return self._plan

    def _followed(self, leaves: Sequence[Any]) -> Round:
        """The round, with what was changed from outside."""
        plan = self._plan
        assert plan is not None
        is_restored = bool(self._restored)
        now = self._first(leaves) if self._now is None else self._now
        handed_out = self._handed_out or [None] * len(leaves)
        if all(leaves[i] is handed_out[i] for i in plan.own):
            return now
        own = now.own if is_restored else self._with_own(leaves, now.own)
        return self._do("follow", now._replace(seen=tuple(leaves[i] for i in plan.seen), own=own))

    def _wanted(self, leaves: Sequence[Any]) -> Round:
        """Shapes and types of a round."""
        plan, count = self._plan, self._replicas.count
        assert plan is not None

        def rows(i: int) -> jax.ShapeDtypeStruct:
            leaf = leaves[i]
            shape = leaf.shape[1:] if self._rows.has(leaf) else leaf.shape
            return jax.ShapeDtypeStruct((count, *shape), leaf.dtype)

        momentum = plan.parameters if plan.has_momentum else ()
        marks = jax.ShapeDtypeStruct((count, len(plan.seen), 2), np.dtype(np.uint32))
        return Round((), tuple(map(rows, plan.own)), tuple(map(rows, momentum)), marks)

    def _first(self, leaves: Sequence[Any]) -> Round:
        """Before the first step: what was restored; zeros, with the marks of zeros, for what everybody sees."""
        wanted = self._wanted(leaves)
        names, likes = self._named(wanted)
        restored = self._restored
        for name in restored.keys() - {*names, _COUNT}:
            raise _other(f"{name}, {restored[name].dtype}{restored[name].shape}", "nothing")
        found = [self._placed(restored.get(name), name, like) for name, like in zip(names, likes, strict=True)]
        self._restored = {}
        return jax.tree.unflatten(jax.tree.structure(wanted), found)

    def _named(self, now: Round) -> tuple[list[str], list[Any]]:
        """The names in checkpoints of all but what is seen, and the arrays."""
        plan = self._plan
        assert plan is not None
        momentum = range(len(now.momentum))
        names = [*(f"{_OWN}{i}" for i in plan.own), *(f"{_MOMENTUM}{i}" for i in momentum), _MARKS]
        return names, [*now.own, *now.momentum, now.marks]

    def _placed(self, value: np.ndarray[Any, Any] | None, name: str, like: jax.ShapeDtypeStruct) -> jax.Array:
        if value is None:
            value = np.broadcast_to(np.zeros((), like.dtype), like.shape)
        if value.shape[1:] != like.shape[1:] or value.dtype != like.dtype:
            raise _other(f"{name}, {value.dtype}{value.shape}", f"{like.dtype}{like.shape}")
        return self._rows.placed(_of_many(value, self._replicas.count))

    def _with_own(self, leaves: Sequence[Any], own: Sequence[Any]) -> tuple[Any, ...]:
        """What stays each replica's own, with what was changed from outside: all replicas go on with it."""
        plan = self._plan
        assert plan is not None
        found = dict(zip(plan.own, own, strict=True))
        mine = [i for i in found if plan.roles[i] == OWN]
        found.update({i: leaves[i] for i in mine if self._rows.has(leaves[i])})
        changed = [i for i in mine if not self._rows.has(leaves[i])]
        found.update(zip(changed, self._rows.repeated([leaves[i] for i in changed]), strict=True))
        return tuple(found.values())

    def fetch(self) -> dict[str, np.ndarray[Any, Any]]:
        """Returns it for a checkpoint; all tasks call it together.

        What all replicas have alike is there once, or not at all if it is a part of the state that everybody sees.
        """
        if self._now is None or self._plan is None:
            return dict(self._restored)
        found = {_COUNT: np.asarray([self._steps], np.int32)}
        for name, value in zip(*self._named(self._now), strict=True):
            if not name.startswith(_OWN):
                found[name] = np.asarray(value.addressable_data(0))
            elif self._steps or self._plan.roles[int(name.removeprefix(_OWN))] == OWN:
                found[name] = fetched(self._replicas, value)
        if not self._steps:
            del found[_MARKS]
        return found

    def restore(self, values: Mapping[str, Any]) -> None:
        """Takes over what `fetch` has returned, there or for another number of replicas; all tasks call it together.

        Other replicas begin with the mean of what those had. The chief's values count.

        Raises:
            CheckpointError: If they are something else.
        """
        mine = sorted(values) if self._replicas.runtime.is_chief else []
        names = self._replicas.runtime.all_gather_object(_WHAT, mine)[0]
        arrays = self._rows.of_chief(_WHAT, [np.asarray(values[name]) for name in mine])
        self._restored = dict(zip(names, arrays, strict=True))
        self._now, self._handed_out = None, []
        unknown = [n for n in names if n not in (_COUNT, _MARKS) and not n.startswith((_MOMENTUM, _OWN))]
        if unknown:
            raise CheckpointError(
                f"A training with local_steps goes on from a checkpoint of one. Received: one that holds {unknown[:3]} "
                "of a training with other options. Use the options that it was made with, or begin anew."
            )
        self._steps = min(int(self._restored.get(_COUNT, np.zeros(1))[0]), self._local.rounds.every - 1)


def _of_many(value: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    """The rows of so many replicas: those that there are, or the mean of others'."""
    if len(value) == count:
        return value
    row = value.mean(0, dtype=value.dtype) if value.dtype.kind == "f" else value[0]
    return np.broadcast_to(row, (count, *value.shape[1:]))


def _other(saved: str, here: str) -> CheckpointError:
    return CheckpointError(
        "What replicas had in a round can only be restored for the same state, trained alike. Received: "
        f"{saved}, where the training has {here}. Restore the checkpoint of this model, compiled alike and with the "
        "same local_steps, or begin anew in another directory."
    )
