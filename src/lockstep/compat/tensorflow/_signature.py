"""Exported models, loaded, whose signatures return tensors."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lockstep import saved_model
from lockstep._types import Tensor
from lockstep.compat.tensorflow._saved_options import LoadOptions
from lockstep.compat.tensorflow._spec import TensorSpec
from lockstep.compat.tensorflow._tensor import as_host
from lockstep.errors import ArgumentError

__all__ = ["load", "save"]


class Signature(saved_model.Signature):
    """Signature of a loaded model, as `lockstep.saved_model.Signature`, that returns tensors."""

    def __init__(self, plain: saved_model.Signature) -> None:
        """Takes over the state of a loaded signature."""
        # All state of the loaded signature, without loading it again.
        vars(self).update(vars(plain))

    def __call__(self, inputs: Tensor = None, /, **named: Tensor) -> dict[str, Any]:
        """Computes the outputs for some examples."""
        return {name: as_host(value) for name, value in super().__call__(inputs, **named).items()}

    @property
    def structured_input_signature(self) -> tuple[tuple[()], dict[str, TensorSpec]]:
        """Specs of the positional inputs, of which there are none, and of the named ones."""
        return (), _specs(self.inputs)

    @property
    def structured_outputs(self) -> dict[str, TensorSpec]:
        """Specs of the outputs."""
        return _specs(self.outputs)


def _specs(infos: Mapping[str, saved_model.TensorInfo]) -> dict[str, TensorSpec]:
    return {name: TensorSpec(info.shape, info.dtype, name) for name, info in infos.items()}


def save(obj: Any, export_dir: str | os.PathLike[str], signatures: Any = None, options: Any = None) -> None:
    """Saves a model, or a module with its functions; see `_saved_objects.save`. Source: tf.saved_model.save."""
    # Imported when it is used: it imports Keras' models.
    from lockstep.compat.tensorflow._saved_objects import save as save_object

    save_object(obj, export_dir, signatures, options)


def load(
    export_dir: str | bytes | os.PathLike[str], tags: str | Iterable[str] | None = None, options: Any = None
) -> Any:
    """Loads an export of an Estimator, or what `tf.saved_model.save` or `model.save` wrote.

    Returns the signatures of an Estimator's export; an object with the methods of a module or model; or, of a directory
    that holds a model of Keras alone, that model.

    Args:
        export_dir: The directory of the export.
        tags: Which part of it: "serve", "train" or "eval"; `None` for "serve", or the only one.
        options: `LoadOptions`, which change no result.

    Raises:
        ArgumentError: If there is no export, it is damaged or of another version, or it has no such part.

    Source: tf.saved_model.load.
    """
    if options is not None and not isinstance(options, LoadOptions):
        raise ArgumentError(f"options is a tf.saved_model.LoadOptions. Received: {options!r:.80}.")
    directory = Path(os.fsdecode(export_dir))
    if (directory / "metadata.json").exists() and not saved_model.contains_saved_model(str(directory)):
        from lockstep.compat.tensorflow.keras._models import load_model

        return load_model(directory)
    model = saved_model.load(export_dir, tags)
    model.signatures.update({name: Signature(plain) for name, plain in model.signatures.items()})
    described = directory / "assets.extra" / "object.json"
    if not described.exists():
        return model
    from lockstep.compat.tensorflow._loaded_objects import load_object

    return load_object(model, described)
