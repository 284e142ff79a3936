"""Signatures of what `tf.saved_model.save` saves: inputs and outputs by name, as `lockstep.saved_model` serves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from lockstep._nest import flatten
from lockstep._types import PyTree, Variable
from lockstep.compat.tensorflow._saved_functions import SavedFunction
from lockstep.compat.tensorflow._saved_values import Slot
from lockstep.saved_model import SignatureFunction


def output_names(results: PyTree) -> list[str]:
    """Returns a name for each tensor of a result: its key in a dict, or `output_0` and so on, as TensorFlow's."""
    leaves = flatten(results, lambda leaf: isinstance(leaf, Slot))[0]
    if isinstance(results, Mapping) and len(leaves) == len(results):
        return [str(key) for key in flatten({key: key for key in results})[0]]
    return [f"output_{number}" for number in range(len(leaves))]


def signature_of(
    function: SavedFunction, inputs: Sequence[str], outputs: Sequence[str], variables: Mapping[str, Variable]
) -> SignatureFunction | None:
    """Returns a signature for servers; `None` if the function has not one program, as one of tensors of any rank.

    Args:
        function: The function.
        inputs: A name for each tensor that it takes.
        outputs: A name for each tensor that it returns.
        variables: By their keys in the export.
    """
    specs = function.specs
    if specs is None:
        return None

    def run(values: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        mapping = [(variable, values[key]) for key, variable in variables.items()]
        with keras.StatelessScope(state_mapping=mapping):
            results = function.call([given[name] for name in inputs])
        return dict(zip(outputs, flatten(results)[0], strict=True))

    return SignatureFunction(run, dict(zip(inputs, specs, strict=True)))
