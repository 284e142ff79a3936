"""tensorflow_datasets, as far as `lockstep.datasets` has it: `import lockstep.compat.tensorflow_datasets as tfds`.

What is loaded are datasets of `lockstep.compat.tensorflow`. Data is looked for where `lockstep.datasets.load` looks,
not in ~/tensorflow_datasets, and nothing is prepared or written there.
"""

from __future__ import annotations

from typing import NoReturn as _NoReturn

from lockstep.compat.tensorflow_datasets import core as core
from lockstep.compat.tensorflow_datasets import features as features
from lockstep.compat.tensorflow_datasets._absent import describe as _describe
from lockstep.compat.tensorflow_datasets._builder import builder as builder
from lockstep.compat.tensorflow_datasets._builder import load as load
from lockstep.compat.tensorflow_datasets._progress import display_progress_bar as display_progress_bar
from lockstep.datasets import ReadConfig as ReadConfig
from lockstep.datasets import Split as Split
from lockstep.datasets import as_numpy as as_numpy
from lockstep.datasets import disable_progress_bar as disable_progress_bar
from lockstep.datasets import enable_progress_bar as enable_progress_bar
from lockstep.datasets import names as list_builders

# The version whose meaning is followed.
__version__ = "4.9.9+lockstep"

__all__ = [
    "ReadConfig",
    "Split",
    "__version__",
    "as_numpy",
    "builder",
    "core",
    "disable_progress_bar",
    "display_progress_bar",
    "enable_progress_bar",
    "features",
    "list_builders",
    "load",
]


def __getattr__(name: str) -> _NoReturn:
    raise AttributeError(_describe(name, __all__))
