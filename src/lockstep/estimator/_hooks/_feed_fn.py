"""Feeding."""

from __future__ import annotations

from lockstep.errors import UnsupportedError
from lockstep.estimator._hooks._base import SessionRunHook


class FeedFnHook(SessionRunHook):
    """Cannot be made: nothing can be fed into a step from outside.

    Source: tf.estimator.FeedFnHook.

    Raises:
        UnsupportedError: Always.
    """

    def __init__(self, feed_fn: object) -> None:
        raise UnsupportedError(
            f"Nothing can be fed into a step from outside: received FeedFnHook({feed_fn!r}). Yield the values from the "
            "input_fn, for example by lockstep.data.Dataset.from_generator."
        )
