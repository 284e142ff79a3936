"""Exports for other runtimes: TensorFlow's SavedModel, ONNX, and `.keras`; each is checked by loading it."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from lockstep import saved_model
from lockstep._migrate._models import load_model
from lockstep._types import Model
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.saved_model.internal import directories, tensorflow, to_tensorflow

# Of results that one machine computes twice, by other compilers.
_TOLERANCE = 1e-4
_EXAMPLES = 2


def export_model(source: str, output: Path, safe_mode: bool = True) -> list[str]:
    """Writes a model in the form that the ending of the output says, and compares its results with the source's.

    Args:
        source: An export of lockstep (a directory), or a model of Keras, see `load_model`.
        output: `name.onnx`, `name.keras`, or a new directory for a SavedModel.
        safe_mode: Whether to refuse an export whose programs reach beyond their own arrays, as `saved_model.load` does.

    Returns:
        Lines that say what was written and compared.

    Raises:
        ArgumentError: If there is no model, or the output has no form.
        UnsupportedError: If a library is missing, or the form cannot hold the model.
    """
    is_export = saved_model.maybe_saved_model_directory(source)
    if output.suffix == ".keras":
        if is_export:
            raise UnsupportedError(
                f"{source} is compiled, and has no layers that a .keras file could hold. Save the model."
            )
        return _to_keras(load_model(source), output)
    if output.suffix == ".onnx":
        if is_export:
            raise UnsupportedError(f"ONNX is made of models of Keras. Received: {source}, a compiled export.")
        return _to_onnx(load_model(source), output)
    if output.suffix:
        raise ArgumentError(f"An export is name.onnx, name.keras, or a directory (a SavedModel). Received: {output}.")
    if is_export:
        to_tensorflow(source, output, safe_mode)
        return [f"{output}: a SavedModel.", *_compare_export(source, output, safe_mode)]
    return _to_saved_model(load_model(source), output)


def _to_keras(model: Model, output: Path) -> list[str]:
    output.parent.mkdir(parents=True, exist_ok=True)
    model.save(str(output))
    again = load_model(str(output))
    inputs = _inputs_of(model)
    return [f"{output}: a model of Keras.", _compare(model, inputs, _flat(again(_one(inputs))))]


def _to_onnx(model: Model, output: Path) -> list[str]:
    output.parent.mkdir(parents=True, exist_ok=True)
    inputs = _inputs_of(model)
    # Keras exports what has been called, and a model that was loaded has not.
    model(_one(inputs))
    try:
        model.export(str(output), format="onnx", verbose=False)
        runtime: Any = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise UnsupportedError(
            f"ONNX is written by jax2onnx, and checked by onnxruntime ({error}). Install them: pip install "
            "'lockstep[onnx]'."
        ) from error
    # Its inputs are in the model's order, whatever the exporter calls them.
    session = runtime.InferenceSession(str(output))
    names = [given.name for given in session.get_inputs()]
    results = session.run(None, dict(zip(names, inputs, strict=True)))
    return [f"{output}: ONNX.", _compare(model, inputs, results)]


def _to_saved_model(model: Model, output: Path) -> list[str]:
    tf = tensorflow()
    inputs = _inputs_of(model)
    model(_one(inputs))
    # In one step, as all exports are: Keras writes file by file.
    directories.create(output, lambda path: model.export(str(path), format="tf_saved_model", verbose=False))
    # Held: its variables end with it.
    loaded = tf.saved_model.load(str(output))
    served = loaded.serve(_one([tf.constant(value) for value in inputs]))
    return [f"{output}: a SavedModel.", _compare(model, inputs, [np.asarray(v) for v in tf.nest.flatten(served)])]


def _inputs_of(model: Model) -> list[np.ndarray[Any, Any]]:
    """Returns random inputs for a few examples."""
    draw = np.random.default_rng(0)
    tensors: list[Any] = _flat(getattr(model, "inputs", None) or ())
    if not tensors:
        raise ArgumentError(f"A model is exported with known inputs. Received: {model.name}, which is not built.")
    shapes = [tuple(size or _EXAMPLES for size in tensor.shape) for tensor in tensors]
    # Small integers stand for words and categories; floats are of both signs.
    return [
        (draw.normal(size=s) if "float" in str(t.dtype) else draw.integers(0, 2, s)).astype(str(t.dtype))
        for s, t in zip(shapes, tensors, strict=True)
    ]


def _compare(model: Model, inputs: list[np.ndarray[Any, Any]], results: list[Any]) -> str:
    expected = _flat(model(_one(inputs), training=False))
    return _difference([np.asarray(value) for value in expected], [np.asarray(value) for value in results])


def _difference(expected: list[np.ndarray[Any, Any]], results: list[np.ndarray[Any, Any]]) -> str:
    largest = 0.0
    for value, result in zip(expected, results, strict=True):
        if value.shape != result.shape:
            raise ArgumentError(f"What was written gives the shape {result.shape}, the model {value.shape}.")
        if value.dtype.kind == "O":
            if value.tolist() != result.tolist():
                raise ArgumentError("What was written gives other text than the model.")
            continue
        # By the largest result: small ones beside it are rounded with it.
        scale = float(np.abs(value.astype(np.float64)).max(initial=1.0))
        gap = np.abs(value.astype(np.float64) - result.astype(np.float64)).max(initial=0.0)
        largest = max(largest, float(gap) / scale)
    if not largest <= _TOLERANCE:
        raise ArgumentError(
            f"What was written gives other numbers than the model: they differ by {largest:.1e}, and may by "
            f"{_TOLERANCE:.0e}. Do not serve it; report the model's layers."
        )
    return f"Loaded, and called on {_EXAMPLES} examples: results differ by {largest:.1e} at most."


def _compare_export(source: str, output: Path, safe_mode: bool) -> list[str]:
    tf = tensorflow()
    model, written = saved_model.load(source, safe_mode=safe_mode), tf.saved_model.load(str(output))
    lines: list[str] = []
    for name, signature in model.signatures.items():
        inputs = {key: _values_of(info) for key, info in signature.inputs.items()}
        try:
            expected = signature(inputs)
        except ValueError as error:
            # Serialised examples of which nothing is known: an empty one will not do where a feature has no default.
            lines.append(f"{name}: loaded, and not called ({str(error).partition('.')[0]}).")
            continue
        results = written.signatures[name](**{key: tf.constant(value) for key, value in inputs.items()})
        keys = list(expected)
        lines.append(f"{name}: {_difference([expected[k] for k in keys], [results[k].numpy() for k in keys])}")
    return lines


def _values_of(info: saved_model.TensorInfo) -> np.ndarray[Any, Any]:
    shape = tuple(size or _EXAMPLES for size in info.shape)
    return np.full(shape, b"", object) if info.is_text else np.ones(shape, info.dtype)


def _one(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def _flat(value: Any) -> list[Any]:
    import keras

    return keras.tree.flatten(value)
