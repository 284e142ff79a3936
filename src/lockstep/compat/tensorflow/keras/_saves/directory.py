"""A whole model in a directory, as Keras 2 saved to a path without extension.

The content is that of Keras 3's own unzipped format (`config.json`, `metadata.json`, `model.weights.h5`, `assets/`), so
that `keras.models.load_model` reads it everywhere, without this package.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Generator
from pathlib import Path

from keras.src.saving import saving_lib

from lockstep._types import Model
from lockstep.checkpoint.internal import atomic as _atomic
from lockstep.checkpoint.internal import naming, remove, take_place

# In the order in which they may be replaced one by one: the configuration is of no use without the weights.
_PARTS = ("assets", "model.weights.h5", "metadata.json", "config.json")


def _staging_path(target: Path) -> Path:
    """Returns a name beside `target`, on the same file system, for what will become it."""
    return target.with_name(f".{target.name}.unfinished-{uuid.uuid4().hex[:8]}")


def save_directory(model: Model, path: str | os.PathLike[str]) -> None:
    """Saves `model`, its optimizer's state included, as the directory `path`.

    A model that was saved there before is replaced when the new one is complete; other files in the directory stay.

    Raises:
        CheckpointError: If it cannot be written.
    """
    target = Path(os.path.abspath(path))
    staged = _staging_path(target)
    with naming(str(target)):
        # Beside the target, on its file system, where a rename is atomic.
        staged.mkdir(parents=True)
        try:
            saving_lib.save_model(model, str(staged), zipped=False)
            _replace(staged, target)
        finally:
            remove(staged)


def _replace(staged: Path, target: Path) -> None:
    # Other files in the directory (logs, a README) are the user's: the directory itself cannot be exchanged then.
    if target.is_dir() and any(entry.name not in _PARTS for entry in target.iterdir()):
        _replace_parts(staged, target)
    else:
        take_place(staged, target, _aside(target))


def _replace_parts(staged: Path, target: Path) -> None:
    """Replaces the model that lies among other files, each file in one step."""
    for name in _PARTS:
        if (staged / name).exists():
            take_place(staged / name, target / name, target / f".{name}.previous")


def recover(path: str | os.PathLike[str]) -> None:
    """Puts back what a process that ended between the two renames of a replacement left aside."""
    target = Path(os.path.abspath(path))
    aside = _aside(target)
    if not target.exists() and aside.exists():
        aside.replace(target)


def _aside(target: Path) -> Path:
    return target.with_name(f".{target.name}.previous")


@contextlib.contextmanager
def whole_file(target: Path, suffix: str = "") -> Generator[Path]:
    """Gives a path to write to; when the block ends well, what was written becomes `target` in one step.

    Args:
        target: The file. Its directory is created.
        suffix: What the name of the temporary file ends in, for writers that look at it.

    Raises:
        CheckpointError: If it cannot be written.
    """
    with naming(str(target)):
        target.parent.mkdir(parents=True, exist_ok=True)
        _atomic.remove_leftovers(str(target.parent), suffix)
    with naming(str(target)), _atomic.replaced(str(target), suffix) as temporary:
        yield Path(temporary)
