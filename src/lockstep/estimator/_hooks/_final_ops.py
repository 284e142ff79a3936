"""Values at the end."""

from __future__ import annotations

from typing import Any

from lockstep.errors import UnsupportedError
from lockstep.estimator._hooks._base import SessionRunHook


class FinalOpsHook(SessionRunHook):
    """Keeps values at the end of a session.

    Args:
        final_ops: Any structure of what a session's `run` takes.
        final_ops_feed_dict: Must be None.

    Source: tf.estimator.FinalOpsHook.

    Raises:
        UnsupportedError: If something is to be fed.
    """

    def __init__(self, final_ops: Any, final_ops_feed_dict: Any = None) -> None:
        if final_ops_feed_dict is not None:
            raise UnsupportedError(
                "Nothing can be fed from outside: FinalOpsHook received a final_ops_feed_dict. Give the value together "
                "with the features, in the input_fn."
            )
        self._final_ops = final_ops
        self._values: Any = None

    @property
    def final_ops_values(self) -> Any:
        """The values, in the structure of `final_ops`; None before the end."""
        return self._values

    def end(self, session: Any) -> None:
        """Takes the values."""
        if self._final_ops is not None:
            self._values = session.run(self._final_ops)

    def next_step(self, step: int) -> None:
        """Returns None: steps are none of its business."""
