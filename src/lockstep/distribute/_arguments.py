"""The arguments of `Strategy.run`, leaf by leaf: arrays that all replicas have, values of each, numbers, the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._engine.step.batches import to_arrays
from lockstep._engine.step.jaxprs import is_traced
from lockstep._engine.step.placement import replicate
from lockstep._engine.step.replicas import Replicas
from lockstep._engine.step.shapes import difference
from lockstep._types import Array, PyTree
from lockstep.distribute._values import DistributedValues, Mirrored, PerReplica, Shape, demand_arrays
from lockstep.errors import ArgumentError

# What a leaf is. Of what is none of these the key has the value itself: it is a part of the program.
WHOLE, OWN, OWN_SCALAR = "whole", "own", "own scalar"
_NUMBERS = (int, float, complex)
# Of values that have no common shape: one shape for each replica.
Shapes = tuple[tuple[Shape, ...], ...]


@dataclass(frozen=True)
class Fixed:
    """A leaf that is a part of the program, compared as Python compares it, or else by its identity."""

    value: PyTree

    def __eq__(self, other: object) -> bool:
        # True == 1 in Python, but as a part of a program a flag is no number.
        if not isinstance(other, Fixed) or type(self.value) is not type(other.value):
            return False
        return self.value is other.value or (_is_hashable(self.value) and bool(self.value == other.value))

    def __hash__(self) -> int:
        # The key keeps the object alive, so that its id cannot become that of another one.
        return hash((type(self.value), self.value if _is_hashable(self.value) else id(self.value)))


class Sorted:
    """Leaves, each for what it is.

    Attributes:
        key: What a program depends on: for each leaf what it is, or its value if it is a part of the program.
        arrays: By the number of the leaf: what the program is given.
        numbers: By the number of the leaf: Python's numbers.
        shapes: Of values of replicas that differ in shape: of each value, for all replicas; else empty.
    """

    __slots__ = ("arrays", "key", "numbers", "shapes")

    def __init__(self, leaves: Sequence[Any], replicas: Replicas) -> None:
        self.arrays: dict[int, Any] = {}
        self.numbers: dict[int, Any] = {}
        key: list[Any] = []
        own: list[tuple[int, PerReplica]] = []
        whole = replicas.whole
        # With one replica, what is on its device is where it is wanted.
        devices = set(replicas.devices) if replicas.count == 1 else None
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, jax.Array):
                is_there = is_traced(leaf) or leaf.sharding == whole or leaf.sharding.device_set == devices
                self.arrays[i] = leaf if is_there else _place(replicas, leaf)
                key.append(WHOLE)
            elif isinstance(leaf, PerReplica):
                if leaf.stack is None:
                    demand_arrays("A PerReplica for strategy.run", list(leaf.on_devices))
                own.append((i, leaf))
                key.append(OWN)
            # Not isinstance: a bool is an int, and part of the program.
            elif type(leaf) in _NUMBERS:
                self.numbers[i] = leaf
                key.append(type(leaf))
            elif isinstance(leaf, (np.ndarray, np.generic)):
                # Not placed here: jit does so with its call, and takes numpy's arrays for equal on all processes.
                self.arrays[i] = to_arrays(leaf)
                key.append(WHOLE)
            elif isinstance(leaf, DistributedValues):
                self.arrays[i] = _place(replicas, jnp.asarray(_value_of(leaf)))
                key.append(WHOLE)
            else:
                key.append(Fixed(leaf))
        self.shapes: Shapes = ()
        if own:
            self._add_own(own, key, replicas)
        self.key = tuple(key)

    def _add_own(self, own: list[tuple[int, PerReplica]], key: list[Any], replicas: Replicas) -> None:
        shapes = all_shapes([value for _, value in own], replicas)
        # Equal shapes show in the stacked arrays; only others are a static argument, each value of which is compiled
        # anew.
        if any(len(set(each)) > 1 for each in shapes):
            self.shapes = tuple(shapes)
        for (i, value), each in zip(own, shapes, strict=True):
            self.arrays[i] = stacked(value, each, replicas)
            if not each[0]:
                key[i] = OWN_SCALAR


class Numbers:
    """Which of Python's numbers are a part of the program: those that have been the same in all calls.

    A number that stays as it is, such as a rate in a module, can be used in any way that Python knows. One that
    changes, such as a step, becomes an array from its second value on: otherwise each value would be compiled anew.
    """

    def __init__(self, found: Sorted) -> None:
        self.fixed = dict(found.numbers)

    def given(self, found: Sorted) -> dict[int, Any]:
        """Returns what the program is given: arrays, and numbers that change."""
        if not found.numbers:
            return found.arrays
        # Once an array, always an array: a third value must not compile a third program.
        for i in [i for i, value in self.fixed.items() if value != found.numbers[i]]:
            del self.fixed[i]
        changing = {i: value for i, value in found.numbers.items() if i not in self.fixed}
        return {**found.arrays, **changing}


def all_shapes(values: Sequence[PerReplica], replicas: Replicas) -> list[tuple[Shape, ...]]:
    """Returns the shapes of each value on all replicas; all tasks call it together."""
    for value in values:
        held = len(value.own_shapes) if value.stack is None else len(replicas.local)
        if held != len(replicas.local) or (value.shapes is not None and len(value.shapes) != replicas.count):
            raise ArgumentError(
                f"A PerReplica must hold a value for each replica of this process. Received: {held} values of "
                f"{value!r} for {len(replicas.local)} replicas. Make it by this strategy: "
                "experimental_distribute_dataset or experimental_distribute_values_from_function."
            )
    # Either all tasks know them or none does, as it depends on the calls that made the values; a task that asked alone
    # would wait for the others.
    if replicas.runtime.is_alone or all(v.shapes is not None for v in values):
        return [v.shapes or v.own_shapes for v in values]
    # One exchange for all values.
    mine = [[list(shape) for shape in v.own_shapes] for v in values]
    everyone = replicas.runtime.all_gather_object("the shapes of values of replicas", mine)
    return [tuple(tuple(s) for task in everyone for s in task[i]) for i in range(len(values))]


def rows_of(shapes: Sequence[Sequence[Shape]]) -> tuple[int, ...]:
    """Returns how many rows each replica has, if its arrays agree on it; else nothing."""
    found = {tuple(shape[0] for shape in each) for each in shapes if each[0]}
    return found.pop() if len(found) == 1 else ()


def stacked(value: PerReplica, shapes: Sequence[Shape], replicas: Replicas) -> jax.Array:
    """Returns all replicas' values in one array, one after the other along its first axis.

    Values of several shapes are filled up to a common one; values without dimensions are a row each.
    """
    if value.stack is not None:
        return value.stack
    if len({len(s) for s in shapes}) > 1:
        raise ArgumentError(
            f"Values of replicas may differ in size, not in their number of dimensions. Received: {list(shapes)}."
            + difference(shapes)
        )
    common = tuple(max(sizes) for sizes in zip(*shapes, strict=True))
    if any(map(is_traced, value.on_devices)):
        return jnp.concatenate([_filled_up(v, common) for v in value.on_devices])
    with jax.ensure_compile_time_eval():  # Also where an outer function is traced.
        return _stack(value, shapes, common, replicas)


def _stack(value: PerReplica, shapes: Sequence[Shape], common: Shape, replicas: Replicas) -> jax.Array:
    rows = [_on(device, v, common) for (_, device), v in zip(replicas.local, value.on_devices, strict=True)]
    whole = (replicas.count, *rows[0].shape[1:]) if not common else (replicas.count * common[0], *common[1:])
    stack = jax.make_array_from_single_device_arrays(whole, replicas.by_example, rows)
    # Padded rows are not what the value holds.
    if len(set(shapes)) == 1:
        value.keep_stack(stack)
    return stack


def _on(device: Any, value: PyTree, common: Shape) -> jax.Array:
    return jax.device_put(_filled_up(to_arrays(value), common), device)


def _filled_up(array: Array, common: Shape) -> Any:
    """An array of this shape; of one row, if it has no dimensions."""
    if array.shape != common:
        array = jnp.pad(array, [(0, m - n) for m, n in zip(common, array.shape, strict=True)])
    return array.reshape(1) if not common else array


def _place(replicas: Replicas, array: jax.Array) -> jax.Array:
    if not array.is_fully_addressable and not array.is_fully_replicated:
        raise ArgumentError(
            "An array of several processes must be whole on each of them, or a PerReplica. Received: one of shape "
            f"{array.shape} with {array.sharding}. Pass what strategy.run or a distributed dataset has returned."
        )
    with jax.ensure_compile_time_eval():  # Also where an outer function is traced.
        return replicate(replicas, array)


def _value_of(value: DistributedValues) -> Any:
    if isinstance(value, Mirrored):
        return value.value
    raise ArgumentError(
        f"strategy.run takes values of replicas as PerReplica or Mirrored. Received: a {type(value).__name__}."
    )


def _is_hashable(value: PyTree) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
