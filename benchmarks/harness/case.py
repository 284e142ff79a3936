"""Cases: what is measured, on which sides, and what must be reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["ours", "peer", "ceiling"]
Environment = Literal["lockstep", "jax", "tensorflow", "torch"]
Quantity = tuple[str, str]

OURS = "lockstep"
TENSORFLOW = "TensorFlow 2.15"
KERAS = "Keras on JAX"
TORCH = "PyTorch"
LOOP = "bare jax loop"
SCAN = "bare lax.scan"
PRODUCTS = "its products and Adam alone"
LIMIT = "its products as fast as large ones, Adam alone"


@dataclass(frozen=True)
class Side:
    """One program that takes part.

    Attributes:
        name: As tables show it.
        runs: The function of the row's module that measures it; it takes the options and returns `{metric: value}`.
        environment: Which Python runs it. `jax` is lockstep's without lockstep: plain Keras on JAX, bare jax.
        role: `ours`, a `peer`, or a `ceiling`: the same arithmetic with nothing around it.
        options: Passed to the function.
        quick: Whether `--quick` measures it too.
    """

    name: str
    runs: str
    environment: Environment = "lockstep"
    role: Role = "peer"
    options: Mapping[str, Any] = field(default_factory=dict)
    quick: bool = True


@dataclass(frozen=True)
class Bar:
    """What must be reached.

    Attributes:
        what: In words, with its unit; it is followed by the figure.
        ours: `(side, metric)`.
        theirs: The quantities it is compared with: with the best of them.
        must: The bar; `None` if there is none.
        aim: What is hoped for; `None` if that is the bar.
        how: `ratio`: ours / theirs. `difference`: ours - theirs. `loss`: 1 - ours / theirs. `value`: ours alone.
        at_most: Whether less is better, of the quantities and of the figure; a `loss` is of quantities to be large.
    """

    what: str
    ours: Quantity
    theirs: Sequence[Quantity]
    must: float | None
    aim: float | None = None
    how: Literal["ratio", "difference", "loss", "value"] = "ratio"
    at_most: bool = False


@dataclass(frozen=True)
class Case:
    """A table: sides down, metrics across.

    Attributes:
        row: Number of the row of the speed table that it belongs to.
        name: Short, unique.
        title: The work, in a sentence.
        module: Where the sides' functions are.
        metrics: Names and what they mean; the first is the one that is drawn.
        sides: Who takes part, ours first.
        bars: What must be reached.
        limit: Seconds that one process may take.
        batch: Examples of a step, where a reader of the results needs it.
        needs: Data that the sides read: names of functions in `data.py`.
        notes: What a reader has to know, in a sentence or two.
    """

    row: int
    name: str
    title: str
    module: str
    metrics: Mapping[str, str]
    sides: Sequence[Side]
    bars: Sequence[Bar] = ()
    limit: float = 600.0
    batch: int | None = None
    needs: Sequence[str] = ()
    notes: str = ""
