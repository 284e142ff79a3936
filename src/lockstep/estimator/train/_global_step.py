"""The global step: the number of training steps done."""

from __future__ import annotations

from typing import Any, Protocol

import jax
import keras

from lockstep._types import Array, PyTree, Tensor, Variable
from lockstep.errors import ArgumentError
from lockstep.estimator._model_fn.records import Rule
from lockstep.estimator._model_fn.scope import current
from lockstep.estimator._model_fn.variables import GLOBAL_STEP


class Session(Protocol):
    """An object that fetches values by name: a hook's session."""

    def run(self, fetches: str) -> Array:
        """Returns a fetched value."""
        ...


class GlobalStep(str):
    """A name for the global step outside of a model_fn, to fetch in hooks and sessions. It equals "global_step"."""

    __slots__ = ()


def get_global_step(graph: None = None) -> Any:
    """Returns the global step.

    Args:
        graph: Only `None`.

    Returns:
        In a model_fn, the number of steps done before this one: int32 (int64 if JAX has 64 bits enabled), no
        dimensions. Elsewhere, a `GlobalStep`, for `session.run` and for a hook's fetches.

    Raises:
        ArgumentError: For a graph.

    Source: tf.compat.v1.train.get_global_step.
    """
    # Programs pass no graph; one that does expects a step of another graph.
    if graph is not None:
        raise ArgumentError(
            f"There are no graphs; each model_fn has one global step. Received: graph={graph!r}. Leave it out."
        )
    scope = current()
    return GlobalStep(GLOBAL_STEP) if scope is None else scope.global_step


def get_or_create_global_step(graph: None = None) -> Any:
    """Returns the global step, which always exists; see `get_global_step`.

    Source: tf.compat.v1.train.get_or_create_global_step.
    """
    return get_global_step(graph)


def create_global_step(graph: None = None) -> Any:
    """Returns the global step, which always exists; see `get_global_step`.

    Source: tf.compat.v1.train.create_global_step.
    """
    return get_global_step(graph)


def global_step(sess: Session | None = None, global_step_tensor: Tensor | None = None) -> Any:
    """Returns the global step of a session as a number, or in a model_fn as `get_global_step` does.

    Args:
        sess: A session, such as a hook's `run_context.session`; not needed in a model_fn.
        global_step_tensor: The result of `get_global_step`.

    Source: tf.compat.v1.train.global_step.
    """
    if sess is None:
        return get_global_step()
    return int(sess.run(GlobalStep(GLOBAL_STEP) if global_step_tensor is None else global_step_tensor))


def assert_global_step(global_step_tensor: Tensor) -> None:
    """Checks that a value can be a global step.

    Raises:
        ArgumentError: If it is not a single integer.

    Source: tf.compat.v1.train.assert_global_step.
    """
    dtype = str(getattr(global_step_tensor, "dtype", ""))
    if isinstance(global_step_tensor, GlobalStep) or (dtype.startswith("int") and not global_step_tensor.shape):
        return
    raise ArgumentError(
        f"A global step is one integer. Received: {global_step_tensor!r}. Use what get_global_step() returns."
    )


def with_counter(rule: Rule, step: Tensor | Variable | None) -> tuple[Rule, bool]:
    """Adds a counter to an update rule; also returns whether the step program increments the global step.

    `step` is `None`, the global step, or a variable to increment.
    """
    if step is None:
        return rule, False
    if isinstance(step, keras.Variable):
        return _CountingRule(rule, step), False
    scope = current()
    # By identity: `get_global_step() + 1` is a computed value, which nothing can increment.
    if isinstance(step, GlobalStep) or (scope is not None and step is scope.global_step):
        return rule, True
    description = f"a computed value of type {step.dtype}" if isinstance(step, jax.Array) else repr(step)
    raise ArgumentError(
        f"global_step is what get_global_step() returns, a keras.Variable, or None. Received: {description}. Pass "
        "get_global_step() itself."
    )


class _CountingRule:
    """An update rule that also increments a variable."""

    def __init__(self, rule: Rule, variable: Variable) -> None:
        self._rule = rule
        self._variable = variable
        self.hyper = rule.hyper

    def update(
        self, scope: object, gradients: list[Array], variables: list[Variable], hyper: dict[str, PyTree]
    ) -> None:
        """Updates the variables, then increments the counter."""
        # tf.compat.v1.train.Optimizer.apply_gradients increments after `_finish`, so an update reads the old count.
        self._rule.update(scope, gradients, variables, hyper)
        self._variable.assign(self._variable.value + 1)
