"""How many steps one dispatch runs, and the outputs of a dispatch.

Around a compiled program Python takes some 0.1 to 0.5 ms, which a large step does not feel and a small one spends half
of its time on. So small steps run in a loop that is part of the program, over batches that are there already.

Every step of such a program runs in the same compiled loop, whether it is one or a hundred. So the numbers do not
depend on how steps are put together, which depends on time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import lax

from lockstep._engine.step.batches import chunk_key
from lockstep._engine.step.jaxprs import Equation, open_jaxpr, subjaxprs
from lockstep._types import Jaxpr, PyTree

# What a dispatch takes from the steps, while programs run and Python goes on; then for each array; and the part of a
# step's time that may be spent on it.
_DISPATCH_SECONDS = 2e-4
_SECONDS_PER_ARRAY = 1.5e-6
_OVERHEAD = 0.02
# A chunk holds so many batches and bytes at most, and so many bytes of outputs of its steps. Control messages between
# tasks travel with chunks, so that several tasks put fewer batches into one.
_MOST_STEPS = 256
_MOST_STEPS_TOGETHER = 16
_MOST_BYTES = 8 << 20
_MOST_OUTPUT_BYTES = 4 << 20
# A dispatch that takes less may be longer, one that takes more must be shorter: signals and callbacks wait for it.
# Where XLA has all cores, what Python does around a dispatch is taken from the steps.
_SHORT_SECONDS, _LONG_SECONDS = 0.04, 0.08
# Operations of products, those of convolutions, and array elements written, in a second: what a small machine of each
# kind reaches. Only the order of magnitude of an estimate counts.
_RATES = {"cpu": (2e11, 8e10, 4e9), "gpu": (2e13, 2e13, 2e11)}
_OTHER_RATES = (1e14, 1e14, 5e11)
# Iterations of a loop whose number is not known.
_ITERATIONS = 8


@dataclass(frozen=True)
class Outputs:
    """The outputs of the steps of one dispatch, still on the devices.

    Attributes:
        value: Those of the last step; or those of all steps, stacked, if `slots` is not `None`.
        slots: Which slots of the stack belong to the steps of the dispatch.
        local: Makes arrays of this process of them.
    """

    value: PyTree
    slots: range | None
    local: Callable[[PyTree], PyTree]

    @property
    def all(self) -> PyTree:
        """Arrays of the last step, or of all steps with zeros in slots that are not theirs."""
        return self.local(self.value)

    @property
    def last(self) -> PyTree:
        """The outputs of the last step: a pytree of arrays of this process."""
        stack, slots = self.all, self.slots
        return stack if slots is None else jax.tree.map(lambda a: a[slots[-1]], stack)

    def each(self) -> list[PyTree]:
        """The outputs of each step; of the last one alone, unless all are kept."""
        if self.slots is None:
            return [self.all]
        # One copy to the host for all steps, then slices of it.
        stack = jax.tree.map(np.asarray, self.all)
        return [jax.tree.map(lambda a: a[slot], stack) for slot in self.slots]  # noqa: B023


class StepsPerExecutionTuner:
    """Tunes how many steps the next dispatch may run: more and more, until one takes long enough.

    Attributes:
        max_steps: How many steps the next dispatch may run.
    """

    def __init__(self, is_alone: bool = True) -> None:
        # Tasks that train together do not follow their clocks: all must dispatch alike, because XLA may put what they
        # exchange before or after the loop.
        self._follows_clock = is_alone
        self.max_steps = 1 if is_alone else _MOST_STEPS_TOGETHER

    def record(self, steps: int, seconds: float) -> None:
        """Notes how long a dispatch of so many steps took."""
        if not self._follows_clock:
            return
        if seconds > _LONG_SECONDS:
            self.max_steps = max(1, steps // 2)
        elif seconds < _SHORT_SECONDS and steps >= self.max_steps:
            self.max_steps = min(2 * self.max_steps, _MOST_STEPS)


def pays(step_seconds: float, arrays: int) -> bool:
    """Returns whether a step is so short that several should run in one dispatch."""
    return _OVERHEAD * step_seconds < _DISPATCH_SECONDS + _SECONDS_PER_ARRAY * arrays


def chunk_capacity(nbytes: int, output_bytes: int, is_alone: bool) -> int:
    """Returns how many batches a chunk holds: a power of two."""
    most = min(
        _MOST_STEPS if is_alone else _MOST_STEPS_TOGETHER,
        _MOST_BYTES // max(1, nbytes),
        _MOST_OUTPUT_BYTES // max(1, output_bytes),
    )
    return 1 << int(math.log2(max(1, most)))


def group_batches(batches: Iterable[Any], capacity: Callable[[Any], int]) -> Iterator[list[Any]]:
    """Yields consecutive batches with the same `chunk_key`, as many together as a chunk holds; or one alone."""
    group: list[Any] = []
    group_key: Any = None
    limit = 0
    for batch in batches:
        key = chunk_key(batch)
        if group and key != group_key:
            yield group
            group = []
        if not group:
            group_key, limit = key, capacity(batch)
        group.append(batch)
        if len(group) >= limit:
            yield group
            group = []
    if group:
        yield group


def estimate_seconds(jaxpr: Jaxpr, platform: str) -> float:
    """Returns about how long a jaxpr takes on one device of a platform ("cpu", "gpu" or another).

    Estimated, not measured, because every task has to come to the same answer, today and after a restart.
    """
    rates = _RATES.get(platform, _OTHER_RATES)
    return sum(amount / rate for amount, rate in zip(_count_work(jaxpr), rates, strict=True))


def _count_work(jaxpr: Jaxpr) -> tuple[float, float, float]:
    """Returns multiplications and additions of products, those of convolutions, and elements that are written."""
    products = convolutions = elements = 0.0
    for eqn in open_jaxpr(jaxpr).eqns:
        inner = list(subjaxprs(eqn))
        iterations = {"scan": eqn.params.get("length", _ITERATIONS), "while": _ITERATIONS}.get(eqn.primitive.name, 1)
        for work in map(_count_work, inner):
            products += iterations * work[0]
            convolutions += iterations * work[1]
            elements += iterations * work[2]
        if not inner:
            products += _dot_operations(eqn) if eqn.primitive is lax.dot_general_p else 0.0
            convolutions += _convolution_operations(eqn) if eqn.primitive is lax.conv_general_dilated_p else 0.0
            elements += sum(_size(v) for v in eqn.outvars)
    return products, convolutions, elements


def _dot_operations(eqn: Equation) -> float:
    (contracted, _), _ = eqn.params["dimension_numbers"]
    left = eqn.invars[0].aval.shape
    return 2.0 * _size(eqn.outvars[0]) * math.prod(left[i] for i in contracted)


def _convolution_operations(eqn: Equation) -> float:
    kernel, params = eqn.invars[1].aval.shape, eqn.params
    features = kernel[params["dimension_numbers"].rhs_spec[0]]
    # The zeros between the elements of a dilated input are not multiplied.
    features *= math.prod(params["lhs_dilation"])
    return 2.0 * _size(eqn.outvars[0]) * math.prod(kernel) / max(1, features)


def _size(variable: Any) -> int:
    return math.prod(getattr(variable.aval, "shape", ()))
