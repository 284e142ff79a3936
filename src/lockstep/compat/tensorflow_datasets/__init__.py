"""tensorflow_datasets, as far as `lockstep.datasets` has it: `import lockstep.compat.tensorflow_datasets as tfds`.

What is loaded are datasets of `lockstep.compat.tensorflow`. Data is looked for where `lockstep.datasets.load` looks,
not in ~/tensorflow_datasets, and nothing is prepared or written there.
"""

from __future__ import annotations

from typing import NoReturn as _NoReturn

from lockstep.compat.tensorflow_datasets import core as core
from lockstep.compat.tensorflow_datasets import features as features
from lockstep.compat.tensorflow_datasets._builder import builder as builder
from lockstep.compat.tensorflow_datasets._builder import display_progress_bar as display_progress_bar
from lockstep.compat.tensorflow_datasets._builder import load as load
from lockstep.datasets import ReadConfig as ReadConfig
from lockstep.datasets import Split as Split
from lockstep.datasets import as_numpy as as_numpy
from lockstep.datasets import disable_progress_bar as disable_progress_bar
from lockstep.datasets import enable_progress_bar as enable_progress_bar
from lockstep.datasets import names as list_builders

# The version whose meaning is followed.
__version__ = "4.9.9+lockstep"

__all__ = ["ReadConfig", "Split", "__version__", "as_numpy", "builder", "core", "disable_progress_bar"]
__all__ += ["display_progress_bar", "enable_progress_bar", "features", "list_builders", "load"]


# Public names of tensorflow_datasets that have no counterpart.
_INSTEAD = {
    "ImageFolder": "make a dataset of the file names, Dataset.list_files, and read each in map",
    "as_dataframe": "make a table of the arrays that load(..., batch_size=-1) returns",
    "benchmark": "time a loop over the dataset",
    "builder_cls": "use builder(name)",
    "builder_from_directory": "load arrays and pass them to Dataset.from_tensor_slices",
    "data_source": "use load(..., batch_size=-1), which returns arrays",
    "decode": "leave decoders away and change images in map",
    "download": "put the files where the documentation of lockstep.datasets says",
    "even_splits": "write slices in percent, such as 'train[:50%]' and 'train[50%:]'",
    "is_dataset_on_gcs": "leave it away; data sets come from where they are published",
    "show_examples": "draw the arrays that as_numpy returns",
    "split_for_jax_process": "use Dataset.shard(process_count, process_index)",
    "testing": "make a dataset of small arrays, Dataset.from_tensor_slices",
}


def __getattr__(name: str) -> _NoReturn:
    advice = f"Instead, {_INSTEAD[name]}." if name in _INSTEAD else f"It has {', '.join(__all__)}."
    raise AttributeError(f"lockstep.compat.tensorflow_datasets has no {name!r}. {advice}")
