"""A step as JAX has recorded it: its jaxpr, which can be run, looked at, and put into a loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend.core import jaxpr_as_fun


@dataclass(frozen=True)
class Recorded:
    """A function `(state, batch) -> (outputs, state)` that has been traced once.

    Attributes:
        jaxpr: What it computes, of flat arguments.
        structure: Of its results.
    """

    jaxpr: Any
    structure: Any

    def __call__(self, state: Any, batch: Any) -> tuple[Any, Any]:
        """Computes it, as a part of another traced function."""
        return jax.tree.unflatten(self.structure, jaxpr_as_fun(self.jaxpr)(*jax.tree.leaves((state, batch))))

    @property
    def outputs(self) -> Any:
        """Shapes and types of the outputs."""
        return jax.tree.unflatten(self.structure, self.jaxpr.out_avals)[0]

    def keeps(self, state: Any) -> bool:
        """Whether the state comes out as it went in: the same structure of the same shapes and types."""
        after = jax.tree.unflatten(self.structure, self.jaxpr.out_avals)[1]
        return jax.tree.structure(after) == jax.tree.structure(state) and signature(after) == signature(state)


def record(step: Callable[[Any, Any], Any], state: Any, batch: Any) -> Recorded:
    """Traces a step for a state and a batch of these shapes and types."""
    jaxpr, shapes = jax.make_jaxpr(step, return_shape=True)(abstract(state), abstract(batch))
    return Recorded(jaxpr, jax.tree.structure(shapes))


def abstract(tree: Any) -> Any:
    """Returns shapes and types in place of arrays."""
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), tree)


def signature(tree: Any) -> tuple[Any, ...]:
    """Returns the shape and type of each array; hashable."""
    return tuple((a.shape, a.dtype) for a in jax.tree.leaves(tree))
