"""Calls of preprocessing layers, each with what TensorFlow 2.15.1 gives for it in preprocessing_expected.json.

A case gets the package. The file needs no TensorFlow; whoever has it writes the expected values again by running
`python -m tests.compat.keras.preprocessing_cases` there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

EXPECTED = Path(__file__).with_name("preprocessing_expected.json")
TEXTS = ["The cat sat, on the mat!", "A Dog's life - the DOG.", "", "ünïcode Ü  tab\tnew\nline x", "the the the"]
WORDS = ["b", "a", "c", "a", "d", "c", "", "[UNK]", "é"]
NUMBERS = [5, 3, 5, 9, -1, 3, 5, 0]
ROWS = [[1.0, 2.0, 3.0], [4.0, 5.0, 7.0], [0.0, 1.0, 8.0]]
HASHED: list[Any] = [["A"], ["longer text than sixteen"], [""], ["é"]]

CASES: dict[str, Callable[[Any], Any]] = {}


def _look_up(tf: Any, mode: str, options: dict[str, Any]) -> Any:
    layer = tf.keras.layers.StringLookup(output_mode=mode, **options)
    layer.adapt(np.array(WORDS))
    asked = ["a", "zz", "b", ""] if options != {"num_oov_indices": 0} else ["a", "b", "c", "d"]
    return [layer.get_vocabulary(), layer(tf.constant(asked)), layer(np.array([asked]).T)]


def _look_up_numbers(tf: Any, mode: str, options: dict[str, Any]) -> Any:
    layer = tf.keras.layers.IntegerLookup(output_mode=mode, **options)
    layer.adapt(np.array(NUMBERS))
    return [layer.get_vocabulary(), layer(tf.constant([5, 7, 0, -1])), layer(tf.constant([[5], [8]]))]


def _vectorize(tf: Any, options: dict[str, Any]) -> Any:
    layer = tf.keras.layers.TextVectorization(**options)
    layer.adapt(TEXTS)
    data = tf.data.Dataset.from_tensor_slices(TEXTS).batch(3).map(lambda text: layer(text))
    return [layer.get_vocabulary(), layer(TEXTS), layer(np.array([["dog cat mat"]])), list(data.as_numpy_iterator())]


def _standardize(tf: Any) -> Any:
    layer = tf.keras.layers.TextVectorization(
        standardize=lambda text: tf.strings.regex_replace(tf.strings.lower(text), "[aeiou]", "")
    )
    layer.adapt(tf.data.Dataset.from_tensor_slices(TEXTS).batch(2))
    return [layer.get_vocabulary(), layer(TEXTS)]


def _normalize(tf: Any, data: Callable[[Any], Any], options: dict[str, Any]) -> Any:
    layer = tf.keras.layers.Normalization(**options)
    layer.adapt(data(tf))
    return layer(np.array(ROWS, "float32"))


def _discretize(tf: Any, data: Callable[[Any], Any], mode: str) -> Any:
    layer = tf.keras.layers.Discretization(num_bins=4, epsilon=0.01, output_mode=mode)
    layer.adapt(data(tf))
    return layer(np.array([[1.0], [10.0], [500.0]]))


for _mode in ("int", "one_hot", "multi_hot", "count", "tf_idf"):
    for _options in (
        {},
        {"mask_token": ""},
        {"num_oov_indices": 3},
        {"max_tokens": 4},
        {"max_tokens": 20, "pad_to_max_tokens": True},
        {"num_oov_indices": 0},
    ):
        CASES[f"text/{_mode}/{_options}"] = lambda tf, m=_mode, o=_options: _look_up(tf, m, o)
    for _options in ({}, {"mask_token": 0}, {"num_oov_indices": 3}, {"max_tokens": 3}):
        CASES[f"number/{_mode}/{_options}"] = lambda tf, m=_mode, o=_options: _look_up_numbers(tf, m, o)
CASES["text/inverse"] = lambda tf: tf.keras.layers.StringLookup(vocabulary=["a", "b"], invert=True, mask_token="")(
    tf.constant([[0, 1], [2, 5]])
)
CASES["text/special"] = lambda tf: tf.keras.layers.StringLookup(vocabulary=["[UNK]", "a", "b"])(tf.constant(["a", "q"]))
CASES["number/inverse"] = lambda tf: tf.keras.layers.IntegerLookup(vocabulary=[12, 36, 42], invert=True)(
    tf.constant([[1, 3], [2, 9]])
)


for _options in (
    {},
    {"standardize": "lower"},
    {"standardize": "strip_punctuation"},
    {"standardize": None},
    {"split": "character"},
    {"ngrams": 2},
    {"ngrams": (2, 3)},
    {"output_sequence_length": 4},
    {"output_sequence_length": 12},
    {"max_tokens": 6},
    {"output_mode": "multi_hot"},
    {"output_mode": "count", "ngrams": 2},
    {"output_mode": "tf_idf"},
    {"output_mode": "multi_hot", "max_tokens": 30, "pad_to_max_tokens": True},
    {"split": None},
):
    CASES[f"words/{_options}"] = lambda tf, o=_options: _vectorize(tf, o)
CASES["words/function"] = _standardize

for _options in (
    {},
    {"mask_value": ""},
    {"salt": 1337},
    {"salt": [133, 137]},
    {"output_mode": "one_hot"},
    {"output_mode": "multi_hot"},
):
    CASES[f"hash/{_options}"] = lambda tf, o=_options: tf.keras.layers.Hashing(7, **o)(np.array(HASHED))
CASES["hash/numbers"] = lambda tf: tf.keras.layers.Hashing(7, mask_value=3)(np.array([[1], [3], [-5], [123456]]))
CASES["hash/crossing"] = lambda tf: tf.keras.layers.HashedCrossing(5)(
    [tf.constant(["A", "B", "A", "B", "A"]), tf.constant([101, 101, 101, 102, 102])]
)

_ROWS: dict[str, Callable[[Any], Any]] = {
    "list": lambda tf: ROWS,
    "dataset": lambda tf: tf.data.Dataset.from_tensor_slices(np.array(ROWS, "float32")).batch(2),
    "unbatched": lambda tf: tf.data.Dataset.from_tensor_slices(np.array(ROWS, "float32")),
}
for _name, _data in _ROWS.items():
    for _options in ({}, {"axis": None}, {"invert": True}) if _name == "list" else ({},):
        CASES[f"normal/{_name}/{_options}"] = lambda tf, d=_data, o=_options: _normalize(tf, d, o)
for _mode in ("int", "one_hot", "count"):
    CASES[f"bins/array/{_mode}"] = lambda tf, m=_mode: _discretize(tf, lambda _: np.arange(40, dtype="float32") ** 2, m)
CASES["bins/dataset"] = lambda tf: _discretize(
    tf, lambda tf: tf.data.Dataset.from_tensor_slices(np.arange(20, dtype="float32")).batch(4), "int"
)


def plain(value: Any) -> Any:
    """Returns a result as JSON has it, with four decimals."""
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (str, bytes)):
        return value if isinstance(value, str) else value.decode()
    array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    if array.dtype == object:
        return [plain(v) for v in array.tolist()] if array.ndim else plain(array.item())
    return np.round(array.astype("float64"), 4).tolist()


if __name__ == "__main__":
    import tensorflow  # pyright: ignore[reportMissingImports]

    EXPECTED.write_text(json.dumps({k: plain(c(tensorflow)) for k, c in CASES.items()}, indent=None, sort_keys=True))
    sys.stdout.write(f"{len(CASES)} cases\n")
