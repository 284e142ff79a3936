"""Interface of rules: from an equation and the layouts of its inputs to a decision how it runs on each replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep._cpu.partitioner.layout import PARTIAL, REPLICATED, Layout, local_shape, size_of


@dataclass(slots=True)
class Call:
    """An equation to decide on.

    Attributes:
        equation: A `flat.Equation`.
        layouts: Those of its inputs.
        count: Number of replicas.
        wanted_axis: The axis along which its outputs are wanted, where all inputs are replicated; else `None`.
        planner: Plans the bodies of loops.
    """

    equation: Any
    layouts: Sequence[Layout]
    count: int
    wanted_axis: int | None = None
    planner: Any = None

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of the primitive."""
        return self.equation.params

    def shape(self, number: int) -> tuple[int, ...]:
        """Returns the shape of an input, as a whole."""
        return self.equation.inputs[number].aval.shape

    def out_shape(self, number: int = 0) -> tuple[int, ...]:
        """Returns the shape of an output, as a whole."""
        return self.equation.outputs[number].aval.shape

    def size(self, number: int) -> int:
        """Returns the bytes of an input, as a whole."""
        return size_of(self.equation.inputs[number].aval)

    def local(self, shape: Sequence[int], axis: int) -> tuple[int, ...]:
        """Returns the shape of one replica's block."""
        return local_shape(shape, axis, self.count)

    def sharded_input(self) -> int | None:
        """Returns the number of the first input that is sharded."""
        return next((i for i, layout in enumerate(self.layouts) if layout.is_sharded), None)


@dataclass(slots=True)
class Decision:
    """Decision how an equation runs on each replica.

    Attributes:
        needs: Layouts that its inputs must have; those with another are converted.
        outs: Layouts of its outputs then.
        params: Of the primitive, where they are not the equation's.
        run: `(this replica's inputs) -> this replica's outputs`, where that is not the primitive itself.
        gathered: Bytes that it collects from all replicas by itself.
        repeated: Bytes of divided inputs whose work every replica does as a whole.
        calls: Reductions inside of it.
    """

    needs: Sequence[Layout]
    outs: Sequence[Layout]
    params: dict[str, Any] | None = None
    run: Callable[[Sequence[Any]], Sequence[Any]] | None = None
    gathered: int = 0
    repeated: int = 0
    calls: int = 0


Rule = Callable[[Call], Decision | None]
"""Returns `None` for a form of the equation that it does not cover."""

RULES: dict[str, Rule] = {}
"""By the name of the primitive: for inputs that are replicated or divided."""

LINEAR: dict[str, Rule] = {}
"""By the name of the primitive: for inputs of which one or more are sums not yet taken."""

SLICEABLE: set[str] = set()
"""Primitives whose rule takes a wanted axis: they can compute one replica's block of their result by itself."""


def rule(*names: str, sliceable: bool = False) -> Callable[[Rule], Rule]:
    """Registers a rule for primitives."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        if sliceable:
            SLICEABLE.update(names)
        return function

    return register


def linear(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for what may be computed of the summands instead of the sum."""

    def register(function: Rule) -> Rule:
        LINEAR.update(dict.fromkeys(names, function))
        return function

    return register


def does_not_grow(call: Call, numbers: Sequence[int]) -> bool:
    """Returns whether the outputs together are no larger than each of these inputs."""
    # A sum that is taken after an operation that grows sends more bytes than one before it.
    made = sum(size_of(o.aval) for o in call.equation.outputs)
    return all(made <= call.size(i) for i in numbers)


def is_summand(call: Call, number: int) -> bool:
    """Returns whether an input is a sum not yet taken, or zero, which is as good as one."""
    layout = call.layouts[number]
    return layout == PARTIAL or (layout == REPLICATED and call.equation.inputs[number].is_zero)


def passes_sums(call: Call, count: int | None = None) -> Decision | None:
    """Decides on outputs that are summands as the first `count` inputs (default: all) are; the others are whole."""
    count = len(call.layouts) if count is None else count
    first = range(count)
    # A value that is no summand would be counted once per replica, and a block is of other elements on each.
    if not all(is_summand(call, i) for i in first) or any(layout != REPLICATED for layout in call.layouts[count:]):
        return None
    needs = [PARTIAL if i < count else REPLICATED for i in range(len(call.layouts))]
    return Decision(needs, [PARTIAL] * len(call.equation.outputs))
