"""Values at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lockstep._types import PyTree
from lockstep.errors import UnsupportedError
from lockstep.estimator._hooks._base import SessionRunHook
from lockstep.estimator._types import Session


class FinalOpsHook(SessionRunHook):
    """Keeps values at the end of a session.

    Args:
        final_ops: Any structure of what a session's `run` takes.
        final_ops_feed_dict: Must be None.

    Source: tf.estimator.FinalOpsHook.

    Raises:
        UnsupportedError: If something is to be fed.
    """

    def __init__(self, final_ops: PyTree, final_ops_feed_dict: Mapping[str, Any] | None = None) -> None:
        if final_ops_feed_dict is not None:
            raise UnsupportedError(
                "Nothing can be fed from outside: FinalOpsHook received a final_ops_feed_dict. Give the value together "
                "with the features, in the input_fn."
            )
        self._final_ops = final_ops
        self._values: Any = None

    @property
    def final_ops_values(self) -> Any:
        """Returns the values, in the structure of `final_ops`; None before the end."""
        return self._values

    def end(self, session: Session) -> None:
        """Takes the values."""
        if self._final_ops is not None:
            self._values = session.run(self._final_ops)

    def next_step(self, step: int) -> None:
        """Returns None: steps are none of its business."""
