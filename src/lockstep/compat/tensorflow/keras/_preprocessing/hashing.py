"""`Hashing` and `HashedCrossing`: numbers of categories without a vocabulary, by TensorFlow's hashes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow._tensor import as_host
from lockstep.compat.tensorflow._types import Argument
from lockstep.compat.tensorflow.keras._preprocessing.encode import check_mode, encode, encoded_shape
from lockstep.compat.tensorflow.keras._preprocessing.host_layer import HostLayer, to_values
from lockstep.compat.tensorflow.keras._preprocessing.siphash import siphash
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.estimator.internal import concatenate_fingerprints, fingerprints

# The key of the first fingerprint of a crossing, which TensorFlow chose.
_CROSS_KEY = 0xDECAFCAFFE


class _Hashed(HostLayer):
    """Holds what both layers have in common: bins, and how their numbers are shown."""

    def __init__(self, num_bins: int, output_mode: str, sparse: bool, kwargs: dict[str, Any]) -> None:
        dtype = kwargs.pop("dtype", None)
        super().__init__(**kwargs)
        name = type(self).__name__
        if not num_bins or num_bins < 1:
            raise ArgumentError(f"num_bins of {name} is at least 1. Received: {num_bins!r}.")
        if sparse:
            raise UnsupportedError(f"{name} gives dense tensors: sparse=True was given. Leave it out.")
        self.num_bins, self.output_mode, self.sparse = num_bins, output_mode, sparse
        self._result_dtype = None if dtype is None else keras.backend.standardize_dtype(dtype)

    def _show(self, numbers: np.ndarray) -> np.ndarray:
        if self.output_mode == "int":
            return numbers.astype(self.result_dtype())
        return encode(numbers, self.output_mode, self.num_bins, self.result_dtype())

    def result_dtype(self) -> str:
        """Returns the dtype of the result."""
        return self._result_dtype or ("int64" if self.output_mode == "int" else keras.config.floatx())

    def symbolic_shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Returns the shape of the result."""
        return encoded_shape(shape, self.output_mode, self.num_bins)


@keras.saving.register_keras_serializable(package="lockstep")
class Hashing(_Hashed):
    """Numbers of texts or integers by their hash.

    Args:
        num_bins: How many numbers there are.
        mask_value: The text or integer whose number is 0; all others have numbers from 1 on then. Default: none.
        salt: One or two integers, the key of SipHash. Default: FarmHash without a key.
        output_mode: "int", "one_hot", "multi_hot" or "count".
        sparse: Must be false.
        **kwargs: Those of every layer.

    Shapes: any in; the same out in mode "int". Dtypes: text or integers in, int64 or floatx out.

    Raises:
        ArgumentError: If arguments do not fit together.

    Source: `tf.keras.layers.Hashing` of TensorFlow 2.15.
    """

    def __init__(
        self,
        num_bins: int,
        mask_value: Any = None,
        salt: int | Sequence[int] | None = None,
        output_mode: str = "int",
        sparse: bool = False,
        **kwargs: Argument,
    ) -> None:
        check_mode("Hashing", output_mode, ("int", "one_hot", "multi_hot", "count"))
        super().__init__(num_bins, output_mode, sparse, kwargs)
        self.mask_value = mask_value
        self.salt = None if salt is None else [salt, salt] if isinstance(salt, int) else list(salt)
        if self.salt is not None and len(self.salt) != 2:
            raise ArgumentError(f"salt of Hashing is one integer or two. Received: {salt!r}.")

    def compute(self, values: np.ndarray) -> np.ndarray:
        """Returns the number of each value's bin, or their encoding."""
        masks = self.mask_value is not None
        # The mask has the first bin for itself.
        bins = self.num_bins - 1 if masks and self.num_bins > 1 else self.num_bins
        texts = _as_text(values)
        if self.salt is None:
            hashes = fingerprints(texts.ravel())
        else:
            hashes = np.array([siphash(text, self.salt) for text in texts.ravel().tolist()], np.uint64)
        numbers = (hashes % np.uint64(bins)).astype("int64").reshape(values.shape)
        if masks:
            mask = self.mask_value.encode() if isinstance(self.mask_value, str) else self.mask_value
            masked = np.array([value == mask for value in values.ravel().tolist()], bool).reshape(values.shape)
            numbers = np.where(masked, 0, numbers + (1 if self.num_bins > 1 else 0))
        return self._show(numbers)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {
            **super().get_config(),
            "num_bins": self.num_bins,
            "mask_value": self.mask_value,
            "salt": self.salt,
            "output_mode": self.output_mode,
            "sparse": self.sparse,
            "dtype": self._result_dtype,
        }


@keras.saving.register_keras_serializable(package="lockstep")
class HashedCrossing(_Hashed):
    """Numbers of combinations of several features' texts or integers, by their hash.

    Args:
        num_bins: How many numbers there are.
        output_mode: "int" or "one_hot".
        sparse: Must be false.
        **kwargs: Those of every layer.

    Shapes: a list of features of one shape `()`, `(batch,)` or `(batch, 1)` in; the same out in mode "int".

    Raises:
        ArgumentError: If the shapes are others.

    Source: `tf.keras.layers.HashedCrossing` of TensorFlow 2.15.
    """

    def __init__(self, num_bins: int, output_mode: str = "int", sparse: bool = False, **kwargs: Argument) -> None:
        check_mode("HashedCrossing", output_mode, ("int", "one_hot"))
        super().__init__(num_bins, output_mode, sparse, kwargs)

    def __call__(self, inputs: Any, *args: Argument, **kwargs: Argument) -> Any:
        """Returns the result of values as a tensor of the host, of symbolic tensors as a symbolic tensor."""
        if any(isinstance(i, keras.KerasTensor) for i in inputs):
            return keras.layers.Layer.__call__(self, inputs, *args, **kwargs)
        return self.call(inputs)

    def call(self, inputs: Tensor) -> Any:
        """Returns the numbers of combinations."""
        features = [to_values(i) for i in inputs]
        shapes = {feature.shape for feature in features}
        shape = features[0].shape
        if len(features) < 2 or len(shapes) > 1 or len(shape) > 2 or (len(shape) == 2 and shape[1] != 1):
            raise ArgumentError(
                "HashedCrossing takes two or more features of one shape, (), (batch,) or (batch, 1). Received: "
                f"{sorted(shapes)}."
            )
        result = np.full(features[0].size, _CROSS_KEY, np.uint64)
        for feature in features:
            if feature.dtype == object:
                hashed = fingerprints(_as_text(feature).ravel())
            else:
                # Integers are their own fingerprints.
                hashed = feature.ravel().astype("int64").view(np.uint64)
            with np.errstate(over="ignore"):
                result = concatenate_fingerprints(result, hashed)
        numbers = (result % np.uint64(self.num_bins)).astype("int64").reshape(shape)
        return as_host(self._show(numbers))

    def compute_output_spec(self, inputs: Any) -> keras.KerasTensor:
        """Returns the placeholder of the result."""
        return super().compute_output_spec(inputs[0])

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {
            **super().get_config(),
            "num_bins": self.num_bins,
            "output_mode": self.output_mode,
            "sparse": self.sparse,
            "dtype": self._result_dtype,
        }


def _as_text(values: np.ndarray) -> np.ndarray:
    """Returns texts as `bytes`; integers as their decimal digits."""
    if values.dtype != object and values.dtype.kind not in "iu":
        raise ArgumentError(f"Hashes are of texts and integers. Received values of {values.dtype}. Cast them.")
    result = np.empty(values.size, object)
    result[:] = [v if isinstance(v, bytes) else str(v).encode() for v in values.ravel().tolist()]
    return result.reshape(values.shape)
