"""The switch for progress bars."""

from __future__ import annotations

from lockstep.datasets import disable_progress_bar, enable_progress_bar


def display_progress_bar(enable: bool = True) -> None:
    """Shows the progress of downloads, or does not (tfds.display_progress_bar)."""
    if enable:
        enable_progress_bar()
    else:
        disable_progress_bar()
