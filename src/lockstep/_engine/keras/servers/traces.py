"""A model's own steps, traced for servers: gradients in place of an update."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import Any

from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from lockstep._engine.keras.replica_step import replace_method
from lockstep._types import Tracer
from lockstep.errors import UnsupportedError


@contextlib.contextmanager
def caught_gradients(caught: list[list[Tracer]]) -> Generator[None]:
    """Has optimizers hand out the gradients of a step that is being traced, in place of an update."""

    def catch(theirs: Callable[..., Any]) -> Callable[..., Any]:
        del theirs

        def stateless_apply(optimizer: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
            caught.append(list(grads))
            return list(trainable_variables), list(optimizer_variables)

        return stateless_apply

    with (
        replace_method(BaseOptimizer, "stateless_apply", catch),
        replace_method(LossScaleOptimizer, "stateless_apply", catch),
    ):
        yield


def only_gradients(caught: Sequence[list[Tracer]], model: Any) -> list[Tracer]:
    """Returns the gradients of a step.

    Raises:
        UnsupportedError: If it has applied an optimizer never, or more than once, or to other variables.
    """
    if len(caught) != 1 or len(caught[0]) != len(model.trainable_variables):
        raise UnsupportedError(
            "Servers apply the model's optimizer to all of its trainable variables, once in each step. Received: "
            f"{type(model).__name__}.train_step, which applies an optimizer {len(caught)} times, to "
            f"{[len(g) for g in caught]} gradients of {len(model.trainable_variables)} variables. Use one optimizer, "
            "or MultiWorkerMirroredStrategy."
        )
    return caught[0]
