"""Local steps: each replica trains by itself for a round of them, and then what the replicas came to becomes one.

In a round a replica has its own copy of what training changes, and no gradient travels. At its end the mean of the
changes of the parameters is what an outer optimizer takes for a gradient. Its step gives the state that everybody sees,
and from which all replicas begin the next round. What inner optimizers keep stays each replica's own for good.

With the outer learning rate 1 and no momentum this is local SGD, or parameter averaging.

Sources: Douillard et al. 2023, "DiLoCo: Distributed Low-Communication Training of Language Models"; Stich 2019, "Local
SGD converges fast and communicates little".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from lockstep._engine.step.reduction import Reduction
from lockstep._engine.step.replicas import AXIS, Replicas, Rounds
from lockstep._engine.step.shares import Made, Shares

Step = Callable[[Any, Any], tuple[Any, Any]]


@dataclass(frozen=True)
class Role:
    """What a leaf of the state is.

    Attributes:
        kind: A word.
        aggregation: How it is combined at the end of a round, in which each replica has its own, as
            `keras.Variable.aggregation` says; empty where that is no question.
        is_metric: Whether it tells of steps, and they do not depend on it: it may be combined at any time.
    """

    kind: str
    aggregation: str = ""
    is_metric: bool = False


PARAMETER: Final = Role("parameter")
"""Each replica's own in a round; the outer optimizer combines it."""
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
class Local:
    """How a step program trains in rounds.

    Attributes:
        rounds: How long they are, and the outer optimizer.
        step: One replica's step of the whole state on its share of a batch, which communicates nothing.
        roles: Returns the role of each leaf of a state, in the state's structure.
        shown: Makes what a step hands out of what the replica's step did, and of the replica's state after it. A task
            sees what its first replica hands out: to combine them would be an exchange in each step.
        whole: As `step`, on the whole of a batch that the replicas cannot divide. Default: `step`.
    """

    rounds: Rounds
    step: Step
    roles: Callable[[Any], Any]
    shown: Callable[[Any, Any], Any] = lambda outputs, state: outputs
    whole: Step | None = None


class Round(NamedTuple):
    """What there is in a round besides the leaves that are common.

    Attributes:
        seen: What everybody sees of the leaves that are combined at its end: what they were at its beginning.
        own: Each replica's leaves, all but those that are common.
        momentum: The outer optimizer's, of each parameter; the same on all replicas.
        marks: uint32 (k, 2), by which to know `seen` again; the same on all replicas.
    """

    seen: tuple[Any, ...]
    own: tuple[Any, ...]
    momentum: tuple[Any, ...]
    marks: Any


class Plan:
    """Which leaf of a state is what, and what happens to it.

    What it does to a round is for one replica, inside of `shard_map` over `AXIS`: there `seen` is whole, and all else
    has a first axis of length 1.

    Args:
        local: What an adapter has said.
        replicas: Where it runs.
        state: The state, or its shapes and types.
    """

    def __init__(self, local: Local, replicas: Replicas, state: Any) -> None:
        roles, self.structure = jax.tree.flatten(local.roles(state))
        self.roles: list[Role] = roles
        self._local = local
        numbers = range(len(self.roles))
        self.common = [i for i in numbers if self.roles[i] == COMMON]
        self.own = [i for i in numbers if self.roles[i] != COMMON]
        self.seen = [i for i in self.own if self.roles[i] != OWN]
        self.parameters = [i for i in numbers if self.roles[i] == PARAMETER]
        count = replicas.count
        self._shares = Shares([None], [1.0 / count], AXIS, count, replicas.reduction or Reduction())

    @property
    def has_momentum(self) -> bool:
        """Whether the outer optimizer keeps anything."""
        return self._local.rounds.momentum > 0

    def joined(self, common: Sequence[Any], own: Sequence[Any]) -> list[Any]:
        """Returns all leaves."""
        found = dict(zip((*self.common, *self.own), (*common, *own), strict=True))
        return [found[i] for i in range(len(self.roles))]

    def step(self, is_whole: bool) -> Step:
        """Returns one replica's step of (leaves that are common, leaves of its own with a first axis of length 1).

        Args:
            is_whole: Whether each replica gets the whole of a batch, because they cannot divide it: then all train on
                it, and the first alone counts it.
        """
        compute = self._local.whole or self._local.step if is_whole else self._local.step

        def both(carried: Any, data: Any) -> tuple[Any, Any]:
            common, own = carried
            before = self.joined(common, _of_replica(own))
            outputs, after = compute(jax.tree.unflatten(self.structure, before), data)
            leaves = self._counted(is_whole, before, _typed(before, jax.tree.leaves(after)))
            shown = self._local.shown(outputs, jax.tree.unflatten(self.structure, leaves))
            own = tuple(leaves[i] for i in self.own)
            return shown, (tuple(leaves[i] for i in self.common), _of_all(own))

        return both

    def _counted(self, is_whole: bool, before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
        """What a step has made of each leaf. What will be added up over the replicas must not count a batch twice."""
        if not is_whole:
            return list(after)
        counts = lax.axis_index(AXIS) == 0
        each = zip(self.roles, before, after, strict=True)
        return [jnp.where(counts, new, old) if role.aggregation == "sum" else new for role, old, new in each]

    def follow(self, now: Round) -> Round:
        """Has the replica go on with what was changed from outside of what everybody sees."""
        seen, own = self._opened(now)
        marks = self._marks(seen)
        is_known = (marks == now.marks[0]).all(1)
        for number, i in enumerate(self.seen):
            own[i] = jnp.where(is_known[number], own[i], seen[i])
        return self._closed(seen, own, now.momentum)

    def count(self, now: Round) -> Round:
        """Combines metrics, and nothing else."""
        seen, own = self._opened(now)
        self._combine(seen, own, [i for i in self.seen if self.roles[i].is_metric])
        return self._closed(seen, own, now.momentum)

    def end(self, now: Round) -> Round:
        """Ends the round, and begins the next one."""
        seen, own = self._opened(now)
        changes = self._shares.mean([[own[i] - seen[i] for i in self.parameters]])
        momentum: list[Any] = []
        for number, (i, change) in enumerate(zip(self.parameters, changes, strict=True)):
            direction = change
            if self.has_momentum:
                direction, kept = self._direction(change, now.momentum[number][0])
                momentum.append(kept.astype(seen[i].dtype))
            value = seen[i] + self._local.rounds.learning_rate * direction
            seen[i] = own[i] = value.astype(seen[i].dtype)
        self._combine(seen, own, [i for i in self.seen if self.roles[i].aggregation])
        return self._closed(seen, own, _of_all(tuple(momentum)))

    def _direction(self, change: Any, momentum: Any) -> tuple[Any, Any]:
        """Where the outer optimizer goes; for its gradient it takes the change, with the other sign.

        Source: torch.optim.SGD, as Douillard et al. use it.
        """
        rounds = self._local.rounds
        momentum = rounds.momentum * momentum + change
        return change + rounds.momentum * momentum if rounds.nesterov else momentum, momentum

    def _combine(self, seen: dict[int, Any], own: dict[int, Any], places: Sequence[int]) -> None:
        made = [Made(False, self.roles[i].aggregation, seen[i], [own[i]]) for i in places]
        for i, value in zip(places, self._shares.combine(made), strict=True):
            seen[i] = own[i] = lax.convert_element_type(value, seen[i].dtype)

    def _opened(self, now: Round) -> tuple[dict[int, Any], dict[int, Any]]:
        """The leaves by their numbers: as everybody sees them, and as the replica has them."""
        own = dict(zip(self.own, _of_replica(now.own), strict=True))
        return dict(zip(self.seen, now.seen, strict=True)), own

    def _closed(self, seen: dict[int, Any], own: dict[int, Any], momentum: tuple[Any, ...]) -> Round:
        return Round(tuple(seen.values()), _of_all(tuple(own.values())), momentum, self._marks(seen)[None])

    def _marks(self, seen: dict[int, Any]) -> Any:
        marks = [_mark(value) for value in seen.values()]
        return jnp.stack(marks) if marks else jnp.zeros((0, 2), jnp.uint32)


def _typed(like: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Values in the types that they had: a step may make others of them, or such as JAX calls weak."""
    return [lax.convert_element_type(new, old.dtype) for old, new in zip(like, values, strict=True)]


def _mark(value: Any) -> Any:
    """Two numbers that tell an array from another one, but for one in 2**64; zeros for an array of zeros."""
    number = value.astype(jnp.uint8) if value.dtype == bool else value
    unsigned = {1: jnp.uint8, 2: jnp.uint16}.get(number.dtype.itemsize, jnp.uint32)
    words = lax.bitcast_convert_type(number, unsigned).reshape(-1).astype(jnp.uint32)
    places = lax.iota(jnp.uint32, words.size)
    mixed = jnp.where(words == 0, jnp.uint32(0), _mixed(words ^ places * jnp.uint32(0x9E3779B1)))
    odd = 2 * places + 1
    return jnp.stack([jnp.sum(mixed, dtype=jnp.uint32), jnp.sum(mixed * odd, dtype=jnp.uint32)])


def _mixed(words: Any) -> Any:
    """Other words, each digit of which depends on all of the old one's: the end of MurmurHash3, 32 bits."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        words = (words ^ words >> shift) * jnp.uint32(factor)
    return words ^ words >> 16


def _of_replica(beside: Any) -> Any:
    return jax.tree.map(lambda a: a[0], beside)


def _of_all(mine: Any) -> Any:
    return jax.tree.map(lambda a: a[None], mine)
