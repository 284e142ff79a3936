"""Exported models, loaded, whose signatures return tensors."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from lockstep import saved_model
from lockstep._types import Tensor
from lockstep.compat.tensorflow._spec import TensorSpec
from lockstep.compat.tensorflow._tensor import as_host
from lockstep.errors import UnsupportedError

__all__ = ["load"]


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


def load(
    export_dir: str | bytes | os.PathLike[str], tags: str | Iterable[str] | None = None, options: None = None
) -> saved_model.LoadedModel:
    """Loads an export of an Estimator.

    Args:
        export_dir: The directory of the export.
        tags: Which part of it: "serve", "train" or "eval"; `None` for "serve", or the only one.
        options: Must be `None`.

    Raises:
        ArgumentError: If there is no export, it is damaged or of another version, or it has no such part.
        UnsupportedError: If there are options.

    Source: tf.saved_model.load.
    """
    if options is not None:
        raise UnsupportedError(f"options must be None: exports are read from a directory. Received: {options!r}.")
    model = saved_model.load(export_dir, tags)
    model.signatures.update({name: Signature(plain) for name, plain in model.signatures.items()})
    return model
