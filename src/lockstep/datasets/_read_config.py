"""Options of reading a data set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lockstep.errors import UnsupportedError


@dataclass(frozen=True)
class ReadConfig:
    """Options of reading a data set (tfds.ReadConfig); options that are not listed cannot be set.

    Attributes:
        options: `lockstep.data.Options` of the dataset. Defaults to none.
        shuffle_seed: The seed of `shuffle_files=True`. Defaults to another order in each run.
        shuffle_reshuffle_each_iteration: Whether `shuffle_files=True` gives another order each time. Defaults to true.
        input_context: With `num_input_pipelines` and `input_pipeline_id`: reads only the examples of that pipeline.
        try_autocache: Must be false; call `Dataset.cache`.
        skip_prefetch: Must be true; call `Dataset.prefetch`.

    Raises:
        UnsupportedError: If one of the last two is otherwise.
    """

    options: Any = None
    shuffle_seed: int | None = None
    shuffle_reshuffle_each_iteration: bool | None = None
    input_context: Any = None
    try_autocache: bool = False
    skip_prefetch: bool = True

    def __post_init__(self) -> None:
        """Refuses options that would be ignored."""
        if self.try_autocache:
            raise UnsupportedError(
                "Data sets are not cached by themselves; those of arrays are in memory anyway. Received: "
                "try_autocache=True. Leave it away, and call cache() on the dataset."
            )
        if not self.skip_prefetch:
            raise UnsupportedError(
                "Data sets do not read ahead by themselves. Received: skip_prefetch=False. Leave it away, and call "
                "prefetch(AUTOTUNE) on the dataset."
            )
