"""Exports as TensorFlow's SavedModels, for TensorFlow Serving: programs through jax2tf, text and examples in the graph.

What the host does ahead of a program becomes operations of the graph: serialised examples are parsed, words are looked
up in tables and hashed, ids become words again. So a server needs neither lockstep nor JAX. TensorFlow is imported when
this is used, and only then.

Source: jax.experimental.jax2tf; tf.saved_model.save.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export

from lockstep.errors import UnsupportedError
from lockstep.saved_model import _directories, _names, _parsing
from lockstep.saved_model._description import OutputInfo, ProgramInfo, SignatureInfo, TensorInfo
from lockstep.saved_model._programs import BATCH, lookup_path
from lockstep.saved_model._read import Files, read

_Values = Mapping[str, Any]


def to_tensorflow(export_dir: str | os.PathLike[str], directory: str | os.PathLike[str], safe_mode: bool = True) -> str:
    """Writes an export as a SavedModel of TensorFlow, which appears when it is complete.

    Args:
        export_dir: An export of lockstep.
        directory: The new directory; it must not exist, or be empty.
        safe_mode: Whether to refuse programs that reach beyond their own arrays, as `load` does.

    Returns:
        The directory.

    Raises:
        ArgumentError: If there is no usable export, or the directory is not empty.
        CheckpointError: If a file cannot be written.
        UnsupportedError: If TensorFlow is not installed, or the export has nothing to serve.
    """
    tf = tensorflow()
    files = read(Path(export_dir), safe_mode)
    signatures = {n: s for n, s in files.description.signatures.items() if s.tags == (_names.SERVING,)}
    if not signatures:
        raise UnsupportedError(
            f"A SavedModel serves. Received: {os.fspath(export_dir)!r}, whose signatures are for "
            f"{', '.join(sorted({tag for s in files.description.signatures.values() for tag in s.tags}))}. Export it "
            "with a serving_input_receiver_fn."
        )
    content = _Content(tf, files)
    functions = {name: content.function(signature) for name, signature in signatures.items()}
    return _directories.create(
        os.fspath(directory), lambda path: tf.saved_model.save(content.module, str(path), signatures=functions)
    )


def tensorflow() -> Any:
    """Returns TensorFlow; raises `UnsupportedError` if it is not installed."""
    try:
        return importlib.import_module("tensorflow")
    except ImportError as error:
        raise UnsupportedError(
            f"TensorFlow's own format is written by TensorFlow, which cannot be imported here ({error}). Install it: "
            "pip install 'lockstep[export]'."
        ) from error


class _Content:
    """Functions of TensorFlow for the signatures of an export, and the object that holds what they use.

    Attributes:
        module: What is saved: variables and tables.
    """

    def __init__(self, tf: Any, files: Files) -> None:
        self._tf = tf
        self._files = files
        looks = files.description.variables
        # Views of the stored bits: bfloat16 is kept as integers in files.
        values = {n: a.view(jax.numpy.dtype(looks[n].dtype)) for n, a in files.variables.items()}
        self._weights = {name: tf.Variable(value, trainable=False) for name, value in values.items()}
        self.module = tf.Module(name="lockstep")
        # Lists: names of attributes may have no slashes.
        self.module.weights = list(self._weights.values())
        self.module.tables = []

    def function(self, signature: SignatureInfo) -> Any:
        """Returns a signature as a concrete function with named inputs."""
        tf = self._tf
        lookups = [_lookup(tf, lookup.function) for lookup in signature.lookups]
        self.module.tables = [*self.module.tables, *(one.table for one in lookups if isinstance(one, _Words))]
        programs = [_Program(tf, self._files.programs[info.file], info) for info in signature.programs]

        def serve(**inputs: Any) -> dict[str, Any]:
            values = {key: value for key, value in inputs.items() if key not in signature.parse}
            for key, spec in signature.parse.items():
                values.update({f"{key}/{k}": v for k, v in _parse_examples(tf, inputs[key], spec).items()})
            numbers = {key: value for key, value in values.items() if value.dtype != tf.string}
            for number, (lookup, convert) in enumerate(zip(signature.lookups, lookups, strict=True)):
                numbers[lookup_path(number, lookup.source)] = convert(values[lookup.source])
            results = self._call(programs, numbers)
            return {key: _output(tf, output, key, results, values) for key, output in signature.outputs.items()}

        inputs = signature.inputs.items()
        specs = {key: tf.TensorSpec(info.shape, _dtype(tf, info), name=_plain(key)) for key, info in inputs}
        return tf.function(serve, autograph=False).get_concrete_function(**specs)

    def _call(self, programs: Sequence[_Program], numbers: _Values) -> Any:
        """Calls the program for the number of examples: one for any, or one for a single example and one for more."""
        if len(programs) == 1:
            return programs[0](self._weights, numbers)
        count = self._tf.shape(next(iter(numbers.values())))[0]
        single, more = programs
        return self._tf.cond(count == 1, lambda: single(self._weights, numbers), lambda: more(self._weights, numbers))


class _Program:
    """A program of an export, as a function of TensorFlow."""

    def __init__(self, tf: Any, program: export.Exported, info: ProgramInfo) -> None:
        self._tf = tf
        # Arguments and keyword arguments; the arguments are variables and inputs.
        variables, self._avals = jax.tree.unflatten(program.in_tree, program.in_avals)[0]
        jax2tf: Any = importlib.import_module("jax.experimental.jax2tf")
        shapes = {n: f"({', '.join(map(str, a.shape))},)" if a.shape else "()" for n, a in self._avals.items()}
        # The platforms that the program was made for: a server's need not be this machine's.
        self._function = jax2tf.convert(
            program.call,
            polymorphic_shapes=[dict.fromkeys(variables), shapes],
            polymorphic_constraints=[f"{BATCH} >= {info.least}"] if BATCH in str(shapes) else [],
            with_gradient=False,
            native_serialization_platforms=list(info.platforms),
        )

    def __call__(self, variables: _Values, numbers: _Values) -> Any:
        """Returns the outputs for inputs of any integers and floats, which become those that the program takes."""
        inputs: dict[str, Any] = {}
        for name, aval in self._avals.items():
            shape = [size if isinstance(size, int) else None for size in aval.shape]
            # JAX computes with 32 bits unless told otherwise; inputs may have 64.
            inputs[name] = self._tf.ensure_shape(self._tf.cast(numbers[name], np.dtype(aval.dtype)), shape)
        return self._function(dict(variables), inputs)


def _output(tf: Any, output: OutputInfo, name: str, results: _Values, values: _Values) -> Any:
    if output.source is not None:
        return tf.identity(values[output.source])
    if output.vocabulary is not None:
        return tf.gather(tf.constant(list(output.vocabulary)), results[name])
    return results[name]


def _parse_examples(tf: Any, serialized: Any, document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the features of serialised examples; shorter rows are filled as lockstep fills them."""
    spec = _parsing.from_json(document)
    found = tf.io.parse_example(serialized, {name: _feature(tf, feature) for name, feature in spec.items()})
    return {name: _dense(tf, value, spec[name]) for name, value in found.items()}


def _feature(tf: Any, feature: Any) -> Any:
    kind, dtype = type(feature).__name__, tf.as_dtype(_parsing.dtype_name(feature.dtype))
    if kind == "FixedLenFeature":
        return tf.io.FixedLenFeature(feature.shape, dtype, feature.default_value)
    if kind == "FixedLenSequenceFeature":
        return tf.io.FixedLenSequenceFeature(feature.shape, dtype, feature.allow_missing, feature.default_value)
    return tf.io.VarLenFeature(dtype)


def _dense(tf: Any, value: Any, feature: Any) -> Any:
    dense = value
    filling: Any = {"string": b"", "int64": -1, "float32": 0.0}[_parsing.dtype_name(feature.dtype)]
    if isinstance(value, tf.SparseTensor):
        dense = tf.sparse.to_dense(value, filling)
    elif type(feature).__name__ == "FixedLenFeature":
        return value
    # A program takes one column at least.
    paddings = [[0, 0], [0, tf.cast(tf.shape(dense)[1] == 0, tf.int32)], *([[0, 0]] * (len(dense.shape) - 2))]
    return tf.pad(dense, paddings, constant_values=filling)


def _lookup(tf: Any, document: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Returns what computes integers of text in a graph, of what `_host_functions` has as JSON.

    Raises:
        UnsupportedError: If it is of a kind that TensorFlow has nothing for.
    """
    kind = document["kind"]
    if kind in ("vocabulary", "column_vocabulary"):
        return _Words(tf, document)
    if kind == "column_buckets":
        return _Buckets(tf, int(document["count"]))
    raise UnsupportedError(
        f"Text becomes numbers by what TensorFlow has, too. Received: a function of the kind {kind!r}, as crossed "
        "columns have. Serve this export with lockstep.saved_model.load."
    )


class _Words:
    """Positions of words in a vocabulary, as a table of a graph.

    Attributes:
        table: The table, which a SavedModel keeps.
    """

    def __init__(self, tf: Any, document: Mapping[str, Any]) -> None:
        self._tf = tf
        words = [word.encode("utf-8", "surrogateescape") for word in document["words"]]
        pairs = tf.lookup.KeyValueTensorInitializer(words, list(range(len(words))), tf.string, tf.int64)
        self.count = len(words)
        # Buckets for other words, and nothing for "", are those of columns.
        self.is_column = document["kind"] == "column_vocabulary"
        self.buckets = int(document.get("num_oov_buckets", 0))
        self.default = int(document["default_value"] if self.is_column else document["default"])
        self.table = tf.lookup.StaticHashTable(pairs, -1)

    def __call__(self, text: Any) -> Any:
        """Returns an integer for each text."""
        tf, numbers = self._tf, self.table.lookup(text)
        others = (
            tf.strings.to_hash_bucket_fast(text, self.buckets) + self.count
            if self.buckets
            else tf.fill(tf.shape(numbers), tf.constant(self.default, tf.int64))
        )
        numbers = tf.where(numbers < 0, others, numbers)
        return _without_empty(tf, text, numbers) if self.is_column else numbers


class _Buckets:
    """Buckets of text by its fingerprint; "" is nothing."""

    def __init__(self, tf: Any, count: int) -> None:
        self._tf, self._count = tf, count

    def __call__(self, text: Any) -> Any:
        """Returns an integer for each text."""
        return _without_empty(self._tf, text, self._tf.strings.to_hash_bucket_fast(text, self._count))


def _without_empty(tf: Any, text: Any, numbers: Any) -> Any:
    # What columns call missing; see lockstep.estimator.feature_column.
    return tf.where(text == b"", tf.constant(_MISSING, tf.int64), numbers)


# The least int32: lockstep.estimator.feature_column marks missing values by it.
_MISSING = int(np.iinfo(np.int32).min)


def _dtype(tf: Any, info: TensorInfo) -> Any:
    return tf.string if info.is_text else tf.as_dtype(info.dtype)


def _plain(name: str) -> str:
    # Names of a graph's inputs have letters, digits and a few signs; callers give the name of the signature.
    return "".join(c if c.isalnum() else "_" for c in name)
