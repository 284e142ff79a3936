"""Local SGD: each replica trains by itself for a number of steps, and then what the replicas came to becomes one.

In between a replica has its own copy of what training changes, and no gradient travels. At an outer step the mean of
the changes of the parameters is what an outer optimizer takes for a gradient. It gives the state that everybody sees,
and from which all replicas go on. What inner optimizers keep stays each replica's own for good.

With the outer learning rate 1 and no momentum this is plain local SGD, or parameter averaging; else it is DiLoCo.

Sources: Douillard et al. 2023, "DiLoCo: Distributed Low-Communication Training of Language Models"; Stich 2019, "Local
SGD converges fast and communicates little".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lockstep._engine.step import backends
from lockstep._engine.step.aggregation import Shards, VariableUpdate
from lockstep._engine.step.batches import Split
from lockstep._engine.step.compiler import PER_REPLICA, WHOLE, Adapter, Carried, on_each_replica, shard_over_replicas
from lockstep._engine.step.placement import ReplicaRows, gather_to_host, local_copy, replicate
from lockstep._engine.step.protocol import Step
from lockstep._engine.step.reduction import Reduction
from lockstep._engine.step.replicas import AXIS, LocalSGDOptions, Replicas
from lockstep._types import Array, Batch, PyTree, State
from lockstep.errors import CheckpointError

# Names in checkpoints.
_COUNT, _MARKS, _MOMENTUM, _OWN = "common/count", "common/marks", "common/momentum/", "own/"
_TOPIC = "what replicas have besides the weights"


@dataclass(frozen=True)
class Role:
    """Role of a leaf of the state in training.

    Attributes:
        kind: A word.
        aggregation: How it is combined at an outer step, between which each replica has its own, as
            `keras.Variable.aggregation` says; empty where that is no question.
        is_metric: Whether it tells of steps, and they do not depend on it: it may be combined at any time.
    """

    kind: str
    aggregation: str = ""
    is_metric: bool = False


PARAMETER: Final = Role("parameter")
"""Each replica's own between outer steps; the outer optimizer combines it."""
OWN: Final = Role("own")
"""Each replica's own for good."""
COMMON: Final = Role("common")
"""The same on all replicas after each step, though each computes it: such as a count of steps."""


def role_of(is_seed: bool, aggregation: str) -> Role:
    """Returns the role of a variable that is not trained: each replica moves the same seeds on."""
    return COMMON if is_seed else Role("combined", aggregation)


def metric_role(aggregation: str) -> Role:
    """Returns the role of a metric's variable."""
    return Role("combined", aggregation, is_metric=True)


@dataclass(frozen=True)
class LocalTraining:
    """Functions of a step program that trains between outer steps.

    Attributes:
        options: How many steps that takes, and the outer optimizer.
        step: One replica's step of the whole state on its shard of a batch, which communicates nothing.
        roles: Returns the role of each leaf of a state, in the state's structure.
        shown: Makes the outputs of a step of those of the replica's step, and of the replica's state after it. A task
            sees those of its first replica: to combine them would be an exchange in each step.
        whole: As `step`, on the whole of a batch that the replicas cannot divide. Default: `step`.
    """

    options: LocalSGDOptions
    step: Step
    roles: Callable[[State], PyTree]
    shown: Callable[[PyTree, State], PyTree] = lambda outputs, state: outputs
    whole: Step | None = None


class OuterState(NamedTuple):
    """The state between outer steps, without the leaves that are common.

    Attributes:
        seen: What everybody sees of the leaves that outer steps combine: their values after the last one.
        own: Each replica's leaves, all but those that are common.
        momentum: The outer optimizer's, of each parameter; the same on all replicas.
        marks: uint32 (k, 2), digests by which to know `seen` again; the same on all replicas.
    """

    seen: Any
    own: Any
    momentum: Any
    marks: Any


_SPECS = OuterState(WHOLE, PER_REPLICA, PER_REPLICA, PER_REPLICA)


class Plan:
    """Roles of the leaves of a state, and what becomes of them.

    The methods from `step` on are for one replica, inside of `shard_map` over `AXIS`: there `seen` is whole, and all
    else has a first axis of length 1.
    """

    def __init__(self, local: LocalTraining, replicas: Replicas, state: State) -> None:
        roles, self.structure = jax.tree.flatten(local.roles(state))
        self.roles: list[Role] = roles
        self._local = local
        indices = range(len(self.roles))
        self.common = [i for i in indices if self.roles[i] == COMMON]
        self.own = [i for i in indices if self.roles[i] != COMMON]
        self.seen = [i for i in self.own if self.roles[i] != OWN]
        self.parameters = [i for i in indices if self.roles[i] == PARAMETER]
        count = replicas.count
        self._shards = Shards([None], [1.0 / count], AXIS, count, replicas.reduction or Reduction())

    def join(self, common: Sequence[Any], own: Sequence[Any]) -> list[Any]:
        """Returns all leaves."""
        leaves = dict(zip((*self.common, *self.own), (*common, *own), strict=True))
        return [leaves[i] for i in range(len(self.roles))]

    def step(self, is_whole: bool) -> Step:
        """Returns one replica's step of (leaves that are common, leaves of its own with a first axis of length 1).

        Args:
            is_whole: Whether each replica gets the whole of a batch, because they cannot divide it: then all train on
                it, and the first alone counts it.
        """
        compute = self._local.whole or self._local.step if is_whole else self._local.step

        def carried_step(carried: Carried, batch: Batch) -> tuple[PyTree, Carried]:
            common, own = carried
            before = self.join(common, jax.tree.map(lambda a: a[0], own))
            outputs, state = compute(jax.tree.unflatten(self.structure, before), batch)
            # A step may return other dtypes, or those that JAX calls weak, which a loop cannot carry.
            after = [
                lax.convert_element_type(new, old.dtype)
                for old, new in zip(before, jax.tree.leaves(state), strict=True)
            ]
            if is_whole:
                # What will be added up over the replicas must not count a batch twice.
                counts = lax.axis_index(AXIS) == 0
                each = zip(self.roles, before, after, strict=True)
                after = [jnp.where(counts, new, old) if r.aggregation == "sum" else new for r, old, new in each]
            shown = self._local.shown(outputs, jax.tree.unflatten(self.structure, after))
            return shown, (tuple(after[i] for i in self.common), tuple(after[i][None] for i in self.own))

        return carried_step

    def follow(self, state: OuterState) -> OuterState:
        """Has the replica go on with what was changed from outside of what everybody sees."""
        seen, own = self._open(state)
        # By marks, not by identity: what has been through another program, such as an evaluation, is a new array of the
        # same content. On the devices, so that nothing is fetched.
        is_known = (_marks(seen) == state.marks[0]).all(1)
        for number, i in enumerate(self.seen):
            own[i] = jnp.where(is_known[number], own[i], seen[i])
        return _close(seen, own, state.momentum)

    def combine_metrics(self, state: OuterState) -> OuterState:
        """Combines metrics, and nothing else."""
        seen, own = self._open(state)
        self._combine(seen, own, [i for i in self.seen if self.roles[i].is_metric])
        return _close(seen, own, state.momentum)

    def outer_step(self, state: OuterState) -> OuterState:
        """Applies the outer optimizer, and has the replica go on with its result."""
        options = self._local.options
        seen, own = self._open(state)
        # The outer optimizer takes the change for its gradient, with the other sign. Source: torch.optim.SGD, as
        # Douillard et al. use it.
        changes = self._shards.mean([[own[i] - seen[i] for i in self.parameters]])
        momenta: list[Any] = []
        for number, (i, change) in enumerate(zip(self.parameters, changes, strict=True)):
            direction = change
            if options.momentum > 0:
                momentum = options.momentum * state.momentum[number][0] + change
                direction = change + options.momentum * momentum if options.nesterov else momentum
                momenta.append(momentum.astype(seen[i].dtype)[None])
            value = seen[i] + options.learning_rate * direction
            seen[i] = own[i] = value.astype(seen[i].dtype)
        self._combine(seen, own, [i for i in self.seen if self.roles[i].aggregation])
        return _close(seen, own, tuple(momenta))

    def _combine(self, seen: dict[int, Any], own: dict[int, Any], indices: Sequence[int]) -> None:
        updates = [VariableUpdate(False, self.roles[i].aggregation, seen[i], [own[i]]) for i in indices]
        for i, value in zip(indices, self._shards.combine(updates), strict=True):
            seen[i] = own[i] = lax.convert_element_type(value, seen[i].dtype)

    def _open(self, state: OuterState) -> tuple[dict[int, Any], dict[int, Any]]:
        """Returns the leaves by their indices: as everybody sees them, and as the replica has them."""
        own = {i: a[0] for i, a in zip(self.own, state.own, strict=True)}
        return dict(zip(self.seen, state.seen, strict=True)), own


def _close(seen: dict[int, Any], own: dict[int, Any], momentum: tuple[Any, ...]) -> OuterState:
    return OuterState(tuple(seen.values()), tuple(a[None] for a in own.values()), momentum, _marks(seen)[None])


def _marks(seen: dict[int, Any]) -> Array:
    return jnp.stack([mark_of(value) for value in seen.values()]) if seen else jnp.zeros((0, 2), jnp.uint32)


def mark_of(value: Array) -> Array:
    """Returns two numbers that tell an array from another one, but for one in 2**64; zeros for an array of zeros."""
    number = value.astype(jnp.uint8) if value.dtype == bool else value
    # 8 bytes become two words: the conversion adds a last axis of length 2.
    unsigned = {1: jnp.uint8, 2: jnp.uint16}.get(number.dtype.itemsize, jnp.uint32)
    words = lax.bitcast_convert_type(number, unsigned).reshape(-1).astype(jnp.uint32)
    places = lax.iota(jnp.uint32, words.size)
    mixed = words ^ places * jnp.uint32(0x9E3779B1)
    # The end of MurmurHash3, 32 bits: each digit of the result depends on all of the word's.
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        mixed = (mixed ^ mixed >> shift) * jnp.uint32(factor)
    # Zeros stay zeros, whatever their places: so the marks before the first step need not be computed.
    mixed = jnp.where(words == 0, jnp.uint32(0), mixed ^ mixed >> 16)
    # Times an odd number modulo 2**32 no bit is lost, and the second sum depends on the places of words, too.
    odd = 2 * places + 1
    return jnp.stack([jnp.sum(mixed, dtype=jnp.uint32), jnp.sum(mixed * odd, dtype=jnp.uint32)])


class LocalSGD(Adapter):
    """Carries each replica's own leaves, takes over what is changed from outside, and makes outer steps.

    In the state that a program hands out, what stays each replica's own has a first axis of replicas; the rest is
    what everybody sees. What comes back changed was changed from outside: all replicas go on with it. Arrays may have
    been through other programs meanwhile, such as an evaluation, so that it is their content that counts.

    A step takes what is common and what is the replica's own, and returns it; it communicates nothing. An outer step is
    a program of its own, which runs between two dispatches: none goes beyond it.
    """

    # Replicas that train by themselves cannot divide what does not divide evenly.
    divides_uneven = False

    def __init__(self, local: LocalTraining, replicas: Replicas) -> None:
        super().__init__(replicas)
        self._local = local
        self._rows = ReplicaRows(replicas)
        self._plan: Plan | None = None
        self._outer: OuterState | None = None
        # Since the last outer step.
        self._steps = 0
        # The leaves that were handed out; and what was restored, to be used by the next step.
        self._handed_out: list[Any] = []
        self._restored: dict[str, np.ndarray[Any, Any]] = {}
        lies = OuterState(replicas.whole, replicas.by_example, replicas.by_example, replicas.by_example)
        self._apply = jax.jit(self._apply_plan, static_argnums=0, donate_argnums=1, out_shardings=lies)

    @property
    def averages_alone(self) -> bool:
        """Returns whether there is one replica, whose mean is itself: it trains as without outer steps.

        Unless it has to go on between outer steps that several replicas have begun.
        """
        return self._local.options.averages and self._replicas.count == 1

    @property
    def is_explicit(self) -> bool:
        """Returns that steps are written for one replica."""
        return True

    @property
    def max_steps(self) -> int | None:
        """How many steps are left until the outer step."""
        return self._local.options.every - self._steps

    def carry(self, step: Step, split: Split) -> Step:
        """Returns the replicas' step, which `LocalTraining` says; a state must have been wrapped before."""
        del step
        assert self._plan is not None
        return shard_over_replicas(self._replicas, self._plan.step(split is not Split.EVEN), split)

    def wrap_shapes(self, state: State, split: Split, batch: Batch) -> Carried:
        """Returns shapes and dtypes of what a step takes, for those of a state."""
        del split, batch
        plan, leaves = self._planned(state), jax.tree.leaves(state)
        return tuple(leaves[i] for i in plan.common), self._shapes(plan, leaves).own

    def wrap(self, state: State, split: Split, batch: Callable[[], Batch]) -> Carried:
        """Hands a step what it takes, which it consumes."""
        del split, batch
        return self._wrap(state)

    def _wrap(self, state: State) -> Carried:
        plan, leaves = self._planned(state), jax.tree.leaves(state)
        is_restored = bool(self._restored)
        outer = self._first(plan, leaves) if self._outer is None else self._outer
        handed_out = self._handed_out or [None] * len(leaves)
        # What nobody has touched needs no look at its content.
        if not all(leaves[i] is handed_out[i] for i in plan.own):
            own = outer.own if is_restored else self._take_over(plan, leaves, outer.own)
            outer = self._apply("follow", outer._replace(seen=tuple(leaves[i] for i in plan.seen), own=own))
        self._outer = outer
        return tuple(leaves[i] for i in plan.common), outer.own

    def unwrap(self, carried: Carried, steps: int) -> State:
        """Takes what so many steps returned, and makes an outer step if it is due; returns the state."""
        common, own = carried
        assert self._outer is not None
        self._outer = self._outer._replace(own=own)
        self._steps += steps
        if self._steps >= self._local.options.every:
            self._make_outer_step()
        return self._state(common)

    def synchronize(self, state: State, ends: bool) -> State:
        """Combines metrics, or makes an outer step ahead of time; all tasks call it together. The state is consumed."""
        # Right after an outer step all is combined. The count is the same on all tasks, so that none of them goes into
        # what follows, which is collective, alone.
        if not self._steps:
            return state
        common, _ = self._wrap(state)
        if ends:
            self._make_outer_step()
        else:
            self._outer = self._apply("combine_metrics", self._outer)
        return self._state(common)

    def _make_outer_step(self) -> None:
        self._outer = self._apply("outer_step", self._outer)
        self._steps = 0

    def _apply_plan(self, method: str, state: OuterState) -> OuterState:
        """Has each replica carry out a method of the plan."""
        backends.begin_program()
        return on_each_replica(self._replicas, getattr(self._plan, method), (_SPECS,), _SPECS)(state)

    def _state(self, common: Sequence[Any]) -> State:
        plan, outer = self._plan, self._outer
        assert plan is not None and outer is not None
        shown = dict(zip(plan.own, outer.own, strict=True)) | dict(zip(plan.seen, outer.seen, strict=True))
        self._handed_out = plan.join(common, [shown[i] for i in plan.own])
        return jax.tree.unflatten(plan.structure, self._handed_out)

    def to_global(self, value: jax.Array) -> jax.Array:
        """Returns an array of the state as one that all replicas have alike: of their own that of the first here."""
        return replicate(self._replicas, self._rows.local_row(value)) if self._rows.has(value) else value

    def to_local(self, value: jax.Array) -> jax.Array:
        """Returns this process's copy; of what stays each replica's own, that of its first replica."""
        return self._rows.local_row(value) if self._rows.has(value) else local_copy(value)

    def _planned(self, state: State) -> Plan:
        if self._plan is None:
            self._plan = Plan(self._local, self._replicas, state)
        return self._plan

    def _shapes(self, plan: Plan, leaves: Sequence[Any]) -> OuterState:
        def rows(i: int) -> jax.ShapeDtypeStruct:
            leaf = leaves[i]
            shape = leaf.shape[1:] if self._rows.has(leaf) else leaf.shape
            return jax.ShapeDtypeStruct((self._replicas.count, *shape), leaf.dtype)

        momentum = plan.parameters if self._local.options.momentum > 0 else ()
        marks = jax.ShapeDtypeStruct((self._replicas.count, len(plan.seen), 2), np.dtype(np.uint32))
        return OuterState((), tuple(map(rows, plan.own)), tuple(map(rows, momentum)), marks)

    def _first(self, plan: Plan, leaves: Sequence[Any]) -> OuterState:
        """Returns the state before the first step: what was restored, or zeros, with the marks of zeros."""
        shapes = self._shapes(plan, leaves)
        names, likes = _name_arrays(plan, shapes)
        restored = self._restored
        for name in restored.keys() - {*names, _COUNT}:
            raise _other_state(f"{name}, {restored[name].dtype}{restored[name].shape}", "nothing")
        arrays = [self._place(restored.get(name), name, like) for name, like in zip(names, likes, strict=True)]
        self._restored = {}
        return jax.tree.unflatten(jax.tree.structure(shapes), arrays)

    def _place(self, value: np.ndarray[Any, Any] | None, name: str, like: jax.ShapeDtypeStruct) -> jax.Array:
        if value is None:
            value = np.broadcast_to(np.zeros((), like.dtype), like.shape)
        if value.shape[1:] != like.shape[1:] or value.dtype != like.dtype:
            raise _other_state(f"{name}, {value.dtype}{value.shape}", f"{like.dtype}{like.shape}")
        count = self._replicas.count
        if len(value) != count:
            # Of another number of replicas: these begin with the mean of what those had.
            row = value.mean(0, dtype=value.dtype) if value.dtype.kind == "f" else value[0]
            value = np.broadcast_to(row, (count, *value.shape[1:]))
        return self._rows.place(value)

    def _take_over(self, plan: Plan, leaves: Sequence[Any], own: Sequence[Any]) -> tuple[Any, ...]:
        """Returns what stays each replica's own, with what was changed from outside: all go on with that."""
        kept = dict(zip(plan.own, own, strict=True))
        mine = [i for i in kept if plan.roles[i] == OWN]
        kept.update({i: leaves[i] for i in mine if self._rows.has(leaves[i])})
        changed = [i for i in mine if not self._rows.has(leaves[i])]
        kept.update(zip(changed, self._rows.repeat([leaves[i] for i in changed]), strict=True))
        return tuple(kept.values())

    def extra_state(self) -> dict[str, np.ndarray]:
        """Returns the replicas' own state for a checkpoint; all tasks call it together.

        What all replicas have alike is there once, or not at all if it is a part of the state that everybody sees.
        """
        if self._outer is None or self._plan is None:
            return dict(self._restored)
        arrays = {_COUNT: np.asarray([self._steps], np.int32)}
        for name, value in zip(*_name_arrays(self._plan, self._outer), strict=True):
            if not name.startswith(_OWN):
                arrays[name] = np.asarray(value.addressable_data(0))
            elif self._steps or self._plan.roles[int(name.removeprefix(_OWN))] == OWN:
                arrays[name] = gather_to_host(self._replicas, value)
        if not self._steps:
            # Right after an outer step all replicas go on with what everybody sees, whatever it is.
            del arrays[_MARKS]
        return arrays

    def restore_extra_state(self, values: Mapping[str, Any]) -> None:
        """Takes over state, saved here or by another number of replicas; all tasks call it together.

        The chief's values count.
        """
        mine = sorted(values) if self._replicas.runtime.is_chief else []
        names = self._replicas.runtime.all_gather_object(_TOPIC, mine)[0]
        arrays = self._rows.broadcast_from_chief(_TOPIC, [np.asarray(values[name]) for name in mine])
        self._restored = dict(zip(names, arrays, strict=True))
        self._outer, self._handed_out = None, []
        unknown = [n for n in names if n not in (_COUNT, _MARKS) and not n.startswith((_MOMENTUM, _OWN))]
        if unknown:
            raise CheckpointError(
                f"A training with local_steps goes on from a checkpoint of one. Received: one that holds {unknown[:3]} "
                "of a training with other options. Use the options that it was made with, or begin anew."
            )
        # Saved in a longer round than those here: the next step ends it.
        self._steps = min(int(self._restored.get(_COUNT, np.zeros(1))[0]), self._local.options.every - 1)


def _name_arrays(plan: Plan, state: OuterState) -> tuple[list[str], list[Any]]:
    """Returns the names in checkpoints of all but what is seen, and the arrays."""
    momentum = range(len(state.momentum))
    names = [*(f"{_OWN}{i}" for i in plan.own), *(f"{_MOMENTUM}{i}" for i in momentum), _MARKS]
    return names, [*state.own, *state.momentum, state.marks]


def _other_state(saved: str, here: str) -> CheckpointError:
    return CheckpointError(
        "What replicas had in a round can only be restored for the same state, trained alike. Received: "
        f"{saved}, where the training has {here}. Restore the checkpoint of this model, compiled alike and with the "
        "same local_steps, or begin anew in another directory."
    )
