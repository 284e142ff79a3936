"""Advice about names of tensorflow_datasets that lockstep does not have."""

from __future__ import annotations

from collections.abc import Sequence

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


def describe(name: str, there: Sequence[str]) -> str:
    """Returns the message for a name of tensorflow_datasets that lockstep does not have."""
    instead = _INSTEAD.get(name)
    advice = f"Instead, {instead}." if instead else f"It has {', '.join(there)}."
    return f"lockstep.compat.tensorflow_datasets has no {name!r}. {advice}"
