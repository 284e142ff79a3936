"""A server's dense variables: those with the same elementwise update lie end to end, and are updated by one call."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import jax
import numpy as np

from lockstep._engine.runtime.buffers import Scratch, align_size, aligned_zeros
from lockstep._engine.servers.compiled import Programs
from lockstep._engine.servers.layout import Shard, Variable, dtype_of
from lockstep._engine.servers.rule import Program
from lockstep._types import Array


@dataclass(eq=False)
class Group:
    """Variables that one call updates.

    Attributes:
        key: Of the program.
        program: What updates them.
        names: Of the variables.
        shapes: By variable, of the server's rows of it, one range after the other.
        offsets: By variable, where it begins in the flat arrays.
        arrays: Value and slots: flat and padded, or of their own shapes if the variable is updated whole. They are
            replaced, never written to, so that a reply may still be under way while the next update is computed.
        size: How many elements the flat arrays have, with what lies between variables.
    """

    key: str
    program: Program
    names: list[str] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    arrays: list[Array] = field(default_factory=list)
    size: int = 0

    @property
    def is_flat(self) -> bool:
        """Returns whether the arrays are flat."""
        return self.program.form != "whole"

    def part(self, name: str, which: int = 0) -> Array:
        """Returns a variable's rows in value (0) or a slot (1, ...), not to be written to."""
        if not self.is_flat:
            return self.arrays[which]
        shape, offset = self.shapes[name], self.offsets[name]
        return self.arrays[which][offset : offset + math.prod(shape)].reshape(shape)

    def set(self, name: str, which: int, value: Array) -> None:
        """Replaces a variable's rows in value or a slot."""
        if not self.is_flat:
            self.arrays[which] = np.array(value, self.arrays[which].dtype)
            return
        array = np.array(self.arrays[which])
        offset = self.offsets[name]
        array[offset : offset + value.size] = np.ravel(value)
        self.arrays[which] = array


class Dense:
    """All variables of kinds "dense" and "delta" on one server."""

    def __init__(self, variables: Mapping[str, Variable], shards: Sequence[Shard], programs: Programs) -> None:
        self._programs = programs
        self._scratch = Scratch()
        self.groups: list[Group] = []
        self.group_of: dict[str, Group] = {}
        self.deltas: dict[str, Array] = {}
        lengths: dict[str, int] = {}
        for shard in shards:
            lengths[shard.variable] = lengths.get(shard.variable, 0) + shard.stop - shard.start
        for name, length in lengths.items():
            variable = variables[name]
            shape = (length, *variable.row_shape) if variable.shape else ()
            if variable.kind == "delta":
                self.deltas[name] = np.zeros(shape, dtype_of(variable.dtype))
            elif variable.kind == "dense":
                self._group_of(variable, shape)
        for group in self.groups:
            _allocate(group, {name: variables[name] for name in group.names})
        self._shapes = {name: group.shapes[name] for name, group in self.group_of.items()}

    def _group_of(self, variable: Variable, shape: tuple[int, ...]) -> None:
        key = self._programs.rule.program_of[variable.name]
        program = self._programs.rule.programs[key]
        group = next((g for g in self.groups if g.key == key and g.is_flat), None)
        if group is None:
            group = Group(key, program)
            self.groups.append(group)
        group.offsets[variable.name] = group.size
        group.shapes[variable.name] = shape
        # Each begins where XLA takes it without a copy, whatever its dtype: a worker has it so from the answer.
        group.size += align_size(math.prod(shape))
        group.names.append(variable.name)
        self.group_of[variable.name] = group

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the variables that a push has gradients of."""
        return self._shapes

    def values(self) -> dict[str, Array]:
        """Returns all variables as they are; later updates do not change what is returned."""
        parts = {name: group.part(name) for name, group in self.group_of.items()}
        return {**parts, **self.deltas}

    def begin_update(
        self, gradients: Mapping[str, Array], rates: Mapping[str, Sequence[Array]]
    ) -> Sequence[Sequence[jax.Array]]:
        """Begins to update all variables, which all have gradients; returns what `end_update` takes."""
        arguments = [[*rates[group.key], *group.arrays, self._gradient(group, gradients)] for group in self.groups]
        return self._programs.begin_updates([group.key for group in self.groups], arguments)

    def end_update(self, results: Sequence[Sequence[jax.Array]]) -> None:
        """Stores the variables that an update comes to."""
        for group, arrays in zip(self.groups if results else (), results, strict=True):
            group.arrays = [np.asarray(array) for array in arrays]

    def _gradient(self, group: Group, gradients: Mapping[str, Array]) -> Array:
        """Returns the gradient of a group, in memory that the next one uses again."""
        value = group.arrays[0]
        if not group.is_flat:
            return np.asarray(gradients[group.names[0]], value.dtype)
        # Between and after the variables it stays zero.
        gradient = self._scratch.array(group.names[0], value.shape, value.dtype)
        for name in group.names:
            offset, own = group.offsets[name], gradients[name]
            gradient[offset : offset + own.size].reshape(own.shape)[...] = own
        return gradient

    def add(self, differences: Mapping[str, Array]) -> None:
        """Adds differences to the variables of kind "delta"."""
        for name, difference in differences.items():
            self.deltas[name] = self.deltas[name] + np.asarray(difference, self.deltas[name].dtype)


def _allocate(group: Group, variables: Mapping[str, Variable]) -> None:
    """Makes value and slots, with the values that slots begin with."""
    first = variables[group.names[0]]
    dtype = dtype_of(first.dtype)
    if not group.is_flat:
        shape = group.shapes[first.name]
        group.arrays = [np.zeros(shape, dtype)]
        for slot in group.program.slots:
            own = shape if slot.shape is None else slot.shape
            group.arrays.append(np.full(own, slot.initial, dtype_of(slot.dtype)))
        return
    group.arrays = [aligned_zeros((group.size,), dtype)]
    for slot in group.program.slots:
        group.arrays.append(aligned_zeros((group.size,), dtype_of(slot.dtype)))
        group.arrays[-1].fill(slot.initial)
