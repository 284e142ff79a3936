"""The step program as the loop and the feed see it, however it runs its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import jax
import numpy as np

from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.batches import DeviceBatch, Outputs, StepsPerExecutionTuner
from lockstep._engine.step.zero1 import OptimizerSharding
from lockstep._types import PyTree, State

Step = Callable[[Any, Any], tuple[Any, Any]]
"""A pure function `(state, batch) -> (outputs, state)`."""
Update = Callable[[Any, Any], Any]
"""A pure function `(state, gradients) -> state`."""
OutputMode = Literal["last", "all"]
"""Which outputs a dispatch of several steps hands out: the last step's, or all."""


class Program(Protocol):
    """A step program.

    Attributes:
        tuner: How many steps a dispatch may run.
        runtime: This process among the others.
        optimizer_sharding: Where the state of an optimizer lies, if replicas divide it.
    """

    tuner: StepsPerExecutionTuner
    runtime: Runtime

    @property
    def optimizer_sharding(self) -> OptimizerSharding | None: ...

    @property
    def max_steps(self) -> int:
        """How many steps the next dispatch may run: at least 1, the same on all tasks."""
        ...

    def __call__(self, state: State, batch: DeviceBatch) -> tuple[PyTree, State]:
        """Runs one step; `state` is donated."""
        ...

    def run(self, state: State, placed: DeviceBatch) -> tuple[Outputs, State]:
        """Runs as many steps as `placed` has; `state` is donated."""
        ...

    def prepare(self, batch: Any) -> Any:
        """Makes of a batch on the host what is to be placed."""
        ...

    def decide(self, state: State, batch: Any) -> None:
        """Decides whether several steps go into one dispatch; all tasks do it together.

        Args:
            state: The state that steps change.
            batch: A first batch, prepared; or `None` if this task has none.
        """
        ...

    def compiled(self) -> list[str]:
        """Returns a short digest of each step that was compiled, in their order: JSON, equal on all tasks."""
        ...

    def decision(self) -> list[int] | None:
        """Returns what was decided, and for which layout, as JSON; `None` if nothing was."""
        ...

    def follow(self, decision: list[int] | None) -> bool:
        """Takes over what an interrupted run has decided; returns whether nothing is left to decide."""
        ...

    def chunk_capacity(self, batch: Any) -> int:
        """Returns how many batches like a prepared one may be placed together; 0 if each goes alone."""
        ...

    def place(self, batches: Sequence[Any]) -> DeviceBatch:
        """Puts prepared batches that go together where the program wants them."""
        ...

    def place_batch(self, batch: Any) -> DeviceBatch:
        """Prepares a global batch, and puts it where the program wants it."""
        ...

    def place_state(self, value: jax.Array) -> jax.Array:
        """Puts one array of the state where the program wants it."""
        ...

    def agree_on_state(self, state: list[jax.Array]) -> list[jax.Array]:
        """Makes the chief's content of the state everyone's."""
        ...

    def local(self, value: PyTree) -> PyTree:
        """Returns an output or a part of the state as arrays of this process."""
        ...

    def synchronize(self, state: State, ends: bool) -> State:
        """Has the state hold what steps came to that is still each replica's own; `state` is donated.

        All tasks call it together: where training ends, for all, and where an epoch ends, for metrics. It changes
        nothing in most programs.
        """
        ...

    def extra_state(self) -> dict[str, np.ndarray]:
        """Returns what the program keeps from step to step besides the state, for a checkpoint.

        All tasks call it together, between dispatches. An array has a first axis of replicas, of which only the sum
        counts for another number of them; or its name begins with "common/", and all replicas have it alike. Empty for
        most programs.
        """
        ...

    def restore_extra_state(self, values: Mapping[str, Any]) -> None:
        """Takes over what `extra_state` has returned; all tasks call it together, and the chief's values count."""
        ...
