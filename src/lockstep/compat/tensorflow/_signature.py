"""Exported models, loaded, whose signatures return tensors."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lockstep import saved_model
from lockstep._nest import map_structure
from lockstep._types import Tensor
from lockstep.compat.tensorflow._saved_options import LoadOptions
from lockstep.compat.tensorflow._spec import TensorSpec
from lockstep.compat.tensorflow._tensor import as_host
from lockstep.errors import ArgumentError, UnsupportedError

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


class SavedObject:
    """A module or a model that `tf.saved_model.save` saved: its functions, as methods.

    Attributes:
        signatures: Its signatures, by name; each returns a dict of tensors.
    """

    def __init__(self, model: saved_model.LoadedModel, functions: Mapping[str, Any]) -> None:
        """Takes over what was loaded, and how its functions are called."""
        self.signatures = {
            name: signature
            for name, signature in model.signatures.items()
            if name not in functions or name == saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
        }
        self._call = None
        for name, described in functions.items():
            method = _Method(model.signatures[name], described["arguments"], described["outputs"])
            if name == "__call__":
                self._call = method
            elif name not in self.signatures:
                setattr(self, name, method)

    def __call__(self, *args: Tensor, training: Any = False, **kwargs: Tensor) -> Any:
        """Computes what the model's or the module's own call does, outside of training."""
        if self._call is None:
            raise UnsupportedError("What was saved has no call of its own. Call a method, or one of its signatures.")
        if training:
            raise UnsupportedError("A loaded model computes as outside of training. Leave training= out.")
        return self._call(*args, **kwargs)


class _Method:
    """A function of an export, called as the one that was saved."""

    def __init__(self, signature: saved_model.Signature, arguments: list[str], outputs: Any) -> None:
        self._signature, self._arguments, self._outputs = signature, arguments, outputs

    def __call__(self, *args: Tensor, **kwargs: Tensor) -> Any:
        """Returns what the function returns: a tensor, or a structure of them."""
        if len(args) == 1 and len(self._arguments) > 1 and isinstance(args[0], (list, tuple, dict)):
            args = tuple(args[0][n] for n in self._arguments) if isinstance(args[0], dict) else tuple(args[0])
        results = self._signature({**dict(zip(self._arguments, args, strict=False)), **kwargs})
        return map_structure(lambda name: results[name], self._outputs)


def save(obj: Any, export_dir: str | os.PathLike[str], signatures: Any = None, options: Any = None) -> None:
    """Saves a model of Keras, or a module's functions; see `_saved_objects.save`. Source: tf.saved_model.save."""
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
    described = directory / "assets.extra" / "functions.json"
    return SavedObject(model, json.loads(described.read_text())) if described.exists() else model
