"""Values that lie in parts on the workers, read by any of them at any time.

It takes all workers to put such values together. So there are places where each worker waits for the others: one that
reads is there, and so is one that has come past all that it might have read. If anybody reads, all put them together.
"""

from __future__ import annotations

from collections.abc import Callable

from lockstep._engine.runtime.runtime import Runtime

# The others are a step away, or in one that waits for this task.
_SECONDS = 60.0
_TOPIC = "a place where workers may read an optimizer's state, which lies in parts on all of them"


class Reading:
    """What one worker reads of the values that steps have come to.

    Args:
        runtime: Who takes part.
        collect: Puts the values together; all tasks call it together.
    """

    def __init__(self, runtime: Runtime, collect: Callable[[], None]) -> None:
        self._runtime = runtime
        self._collect = collect
        self._is_due = False

    def begin(self) -> None:
        """A step makes new values, which nobody has put together."""
        self._is_due = not self._runtime.is_alone

    def read(self) -> None:
        """Puts the values together, as soon as the other tasks have come to read or `pass_by`.

        Raises:
            MissingTaskError: If one does not come.
            MismatchError: If one is at something else that takes all of them.
        """
        self._meet(reads=True)

    def pass_by(self) -> None:
        """Lets the others read: this task needs nothing before it goes on. All tasks call it in the same places."""
        self._meet(reads=False)

    def together(self) -> None:
        """Puts the values together; all tasks call it together."""
        if self._is_due:
            self._is_due = False
            self._collect()

    def _meet(self, reads: bool) -> None:
        if self._is_due and any(self._runtime.all_gather_object(_TOPIC, reads, _SECONDS)):
            self.together()
