"""Scaffold: a model_fn's additions to the start of training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lockstep._types import PyTree
from lockstep.errors import ArgumentError, UnsupportedError

_ADVICE = {
    "saver": "RunConfig says which checkpoints are kept, WarmStartSettings where values come from.",
    "summary_op": "All summaries of the model_fn are written; leave it out.",
    "init_op": "Variables have their value from the start; use init_fn, or WarmStartSettings.",
    "local_init_op": "Tables and local variables are ready from the start; use init_fn for what is left.",
}
_DEFAULT_ADVICE = "Variables are ready when training begins; use init_fn for what else is to happen."


class Scaffold:
    """A model_fn's additions to the start of training.

    Args:
        init_op: Must be `None`, or something that does nothing, such as tf.compat.v1.global_variables_initializer().
        init_feed_dict: Must be `None`.
        init_fn: A function of this object and the session, called once the variables have their first values, unless
            those come from a checkpoint.
        ready_op: See `init_op`.
        ready_for_local_init_op: See `init_op`.
        local_init_op: See `init_op`.
        summary_op: See `init_op`: all summaries are written.
        saver: Must be `None`: `RunConfig` decides which checkpoints are kept.
        copy_from_scaffold: A Scaffold whose `init_fn` is used without `init_fn`.
        local_init_feed_dict: Must be `None`.

    Raises:
        UnsupportedError: For arguments that concern a graph.
        ArgumentError: If `init_fn` is no function, or `copy_from_scaffold` no Scaffold.

    Source: tf.compat.v1.train.Scaffold.
    """

    def __init__(
        self,
        init_op: object | None = None,
        init_feed_dict: object | None = None,
        init_fn: Callable[[Scaffold, Any], Any] | None = None,
        ready_op: object | None = None,
        ready_for_local_init_op: object | None = None,
        local_init_op: object | None = None,
        summary_op: PyTree | None = None,
        saver: object | None = None,
        copy_from_scaffold: Scaffold | None = None,
        local_init_feed_dict: object | None = None,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "init_fn", "__class__")}
        for name, value in arguments.items():
            if name != "copy_from_scaffold" and not _does_nothing(value):
                raise UnsupportedError(
                    f"Scaffold.{name} must be None: there is no graph that it could act on. Received: {value!r}. "
                    f"{_ADVICE.get(name, _DEFAULT_ADVICE)}"
                )
        if init_fn is not None and not callable(init_fn):
            raise ArgumentError(
                f"init_fn must be a function of the scaffold and the session, or None. Received: {init_fn!r}."
            )
        self._init_fn = init_fn if init_fn is not None else _init_fn_of(copy_from_scaffold)

    @property
    def init_fn(self) -> Callable[[Any], Any] | None:
        """Returns the function of the session, or `None`."""
        function = self._init_fn
        return None if function is None else lambda session: function(self, session)


def _does_nothing(value: object) -> bool:
    return value is None or (isinstance(value, tuple) and not value)


def _init_fn_of(scaffold: Scaffold | None) -> Callable[[Scaffold, Any], Any] | None:
    if scaffold is None:
        return None
    if not isinstance(scaffold, Scaffold):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"copy_from_scaffold must be a Scaffold, or None. Received: {scaffold!r}.")
    return scaffold._init_fn  # pyright: ignore[reportPrivateUsage]
