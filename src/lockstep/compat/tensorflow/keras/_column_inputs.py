"""Sequential models that begin with `DenseFeatures`, fed with text: its integers are computed on the host.

JAX has no text. What columns look up of it is computed before the step, in the order in which they ask for it, and
given to them again when the step is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np

from lockstep._text import Text
from lockstep._types import Array, DType, Layer, Model, PyTree
from lockstep.compat.tensorflow._types import Argument
from lockstep.compat.tensorflow.keras._patches._patch import replaces
from lockstep.estimator.feature_column import DenseFeatures
from lockstep.estimator.internal import ColumnVariables, Features

# Names of integers that stand for text; the number of the request, and the feature's name.
_CODES = "lockstep_codes_"


def columns_of(model: Model) -> Layer | None:
    """Returns the layer of columns that a sequential model begins with, or None."""
    layers: Any = vars(model).get("_layers") if isinstance(model, keras.Sequential) else None
    return layers[0] if layers and isinstance(layers[0], DenseFeatures) else None


def holds_codes(features: PyTree) -> bool:
    """Returns whether features are what `encode` gives."""
    return isinstance(features, Mapping) and any(str(name).startswith(_CODES) for name in features)


def encode(layer: Layer, features: PyTree) -> Any:
    """Returns features with integers in place of text; of text that no column asks for, nothing."""
    if not isinstance(features, Mapping) or holds_codes(features):
        return features
    values = {name: np.asarray(value) for name, value in features.items()}
    texts = {name for name, value in values.items() if value.dtype.kind in "OSU"}
    if not texts:
        return features
    asked = _Asked(values)
    given = {name: Text(asked, name, v.shape) if name in texts else v for name, v in values.items()}
    # The weights are not here while the model trains, and what is looked up does not depend on them.
    found, weights = Features(given), ColumnVariables(lambda column, name, shape, *_: np.zeros(shape, "float32"))
    for column in layer._columns:
        column.dense(found, weights)
    return {name: value for name, value in values.items() if name not in texts} | asked.codes


@replaces(DenseFeatures, "call")
def _call(original: Callable[..., Any], self: Layer, features: PyTree, *args: Argument, **kwargs: Argument) -> Any:
    """Gives columns the integers of their text, where the model was given them."""
    if not holds_codes(features):
        return original(self, features, *args, **kwargs)
    codes = {name: value for name, value in features.items() if name.startswith(_CODES)}
    given = _Given([codes[name] for name in sorted(codes)])
    # The names of the features follow a number of four digits.
    texts = {name[len(_CODES) + 5 :]: Text(given, name, tuple(value.shape)) for name, value in codes.items()}
    found = {name: value for name, value in features.items() if name not in codes}
    return original(self, found | texts, *args, **kwargs)


class _Asked:
    """Computes and keeps what columns ask for."""

    def __init__(self, values: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self._values = values
        self.codes: dict[str, Any] = {}

    def host_ids(self, leaf: str, shape: tuple[int, ...], function: Callable[[Any], Any], dtype: DType) -> Array:
        """Returns integers for the text of a feature."""
        texts = self._values[leaf]
        encoded = np.empty(texts.size, object)
        encoded[:] = [e.encode() if isinstance(e, str) else bytes(e) for e in texts.ravel()]
        codes = np.asarray(function(encoded.reshape(texts.shape)), dtype)
        self.codes[f"{_CODES}{len(self.codes):04d}_{leaf}"] = codes
        return jnp.asarray(codes)


class _Given:
    """Gives what `_Asked` has kept, in the same order."""

    def __init__(self, codes: list[Any]) -> None:
        self._codes = iter(codes)

    def host_ids(self, leaf: str, shape: tuple[int, ...], function: Callable[[Any], Any], dtype: DType) -> Array:
        """Returns the next integers."""
        return next(self._codes)
