"""What a rule is: of an equation whose inputs lie on the replicas somehow, how it runs on each of them."""

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
        layouts: How its inputs lie.
        count: Number of replicas.
        wish: Along which axis its outputs are wanted divided, where all inputs are replicated; else `None`.
        planner: Plans the bodies of loops.
    """

    equation: Any
    layouts: Sequence[Layout]
    count: int
    wish: int | None = None
    planner: Any = None

    @property
    def params(self) -> dict[str, Any]:
        """Of the primitive."""
        return self.equation.params

    def shape(self, number: int) -> tuple[int, ...]:
        """Of an input, as a whole."""
        return self.equation.inputs[number].aval.shape

    def out_shape(self, number: int = 0) -> tuple[int, ...]:
        """Of an output, as a whole."""
        return self.equation.outputs[number].aval.shape

    def size(self, number: int) -> int:
        """Bytes of an input, as a whole."""
        return size_of(self.equation.inputs[number].aval)

    def local(self, shape: Sequence[int], axis: int) -> tuple[int, ...]:
        """The shape of one replica's block."""
        return local_shape(shape, axis, self.count)

    def sharded_input(self) -> int | None:
        """The number of the first input that is divided."""
        return next((i for i, layout in enumerate(self.layouts) if layout.is_sharded), None)


@dataclass(slots=True)
class Decision:
    """How an equation runs on each replica.

    Attributes:
        needs: How its inputs must lie; what lies otherwise is converted.
        outs: How its outputs lie then.
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

PULLS: set[str] = set()
"""Primitives whose rule takes a wish: they can compute one replica's block of their result by itself."""


def rule(*names: str, pulls: bool = False) -> Callable[[Rule], Rule]:
    """Registers a rule for primitives."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        if pulls:
            PULLS.update(names)
        return function

    return register


def linear(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for what may be computed of the summands instead of the sum."""

    def register(function: Rule) -> Rule:
        LINEAR.update(dict.fromkeys(names, function))
        return function

    return register


def does_not_grow(call: Call, numbers: Sequence[int]) -> bool:
    """Whether the outputs together are no larger than each of these inputs."""
    made = sum(size_of(o.aval) for o in call.equation.outputs)
    return all(made <= call.size(i) for i in numbers)


def is_summand(call: Call, number: int) -> bool:
    """Whether an input is a sum not yet taken, or zero, which is as good as one."""
    layout = call.layouts[number]
    return layout == PARTIAL or (layout == REPLICATED and call.equation.inputs[number].is_zero)


def passes_sums(call: Call, count: int | None = None) -> Decision | None:
    """The first `count` inputs (default: all) are summands or zero, the others whole: so is what comes out."""
    count = len(call.layouts) if count is None else count
    first = range(count)
    if not all(is_summand(call, i) for i in first) or any(layout != REPLICATED for layout in call.layouts[count:]):
        return None
    needs = [PARTIAL if i < count else REPLICATED for i in range(len(call.layouts))]
    return Decision(needs, [PARTIAL] * len(call.equation.outputs))
