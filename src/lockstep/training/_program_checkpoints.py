"""The checkpoints of `Program.fit`."""

from __future__ import annotations

from typing import Any

from lockstep.training.callbacks._backup_and_restore import BackupAndRestore


class Checkpoints(BackupAndRestore):
    """Keeps checkpoints that a training goes on from; there is always one of its end.

    Args:
        directory: Where.
        save_every: After how many steps, or "epoch", or `None` for the end only.
        keep_max: How many are kept.
    """

    basename = "ckpt"

    def __init__(self, directory: Any, save_every: Any, keep_max: int) -> None:
        frequency = False if save_every is None else save_every
        super().__init__(directory, frequency, delete_checkpoint=False, keep=keep_max)

    def note_restored(self) -> None:
        """What training begins with was restored, and need not be saved again."""
        self._saved = self._now()

    def finish(self, is_done: bool) -> None:
        """Saves the end, if that is not done."""
        if is_done and self._saved != self._now():
            self._save()
        super().finish(is_done)
