"""Loaded exports: models that can be called."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from lockstep._types import ArrayLike
from lockstep.errors import ArgumentError, LockstepError, UnsupportedError
from lockstep.saved_model import _host_functions, _names, _parsing
from lockstep.saved_model._description import OutputInfo, SignatureInfo, TensorInfo
from lockstep.saved_model._function import program_infos_by_path
from lockstep.saved_model._programs import lookup_path
from lockstep.saved_model._read import Files, read, unusable_error
from lockstep.saved_model._values import check_ties, count_examples, describe, fits, to_inputs

_Array = np.ndarray[Any, np.dtype[Any]]


class Signature:
    """A signature of a loaded model; call it.

    Args:
        name: Its name.
        info: Its description.
        programs: Its programs.
        variables: Returns the variables on the device.

    Attributes:
        name: Its name.
        method_name: TensorFlow's name for its kind.
        inputs: Shapes (`None` where any number will do) and dtypes of its inputs, by name.
        outputs: The same of its outputs.
    """

    def __init__(
        self,
        name: str,
        info: SignatureInfo,
        programs: Mapping[str, export.Exported],
        variables: Callable[[], dict[str, jax.Array]],
    ) -> None:
        self.name = name
        self.method_name = info.method
        self.inputs: dict[str, TensorInfo] = dict(info.inputs)
        self.outputs: dict[str, TensorInfo] = {name: output.info for name, output in info.outputs.items()}
        self._info = info
        self._host = _Host(info)
        # jit keeps one compiled program for each number of examples that has been seen.
        self._programs = [(p, jax.jit(programs[p.file].call)) for p in info.programs]
        self._variables = variables

    def __call__(self, inputs: Any = None, /, **named: Any) -> dict[str, _Array]:
        """Computes the outputs for some examples.

        Args:
            inputs: The inputs by name, or the value of the only one; or give them as keyword arguments.
            named: The inputs by name: arrays of the dtypes and shapes of `inputs`. Text is `bytes` or `str`.

        Returns:
            The outputs by name; text is an object array of `bytes`.

        Raises:
            ArgumentError: If the inputs are not what the signature takes.
            UnsupportedError: If the export has no program for this kind of device.
            InputError: If a serialised example is none, or does not hold what is described.
        """
        # TensorFlow's signatures take names only; Keras' models, which users know better, take a value.
        if inputs is not None and not isinstance(inputs, Mapping):
            inputs = self._only_input(inputs, named)
        given = {**(inputs or {}), **named}
        arrays = to_inputs(self.name, self.inputs, given)
        count = count_examples(self.name, self.inputs, arrays)
        return self._outputs_of_none() if count == 0 else self._outputs_of(arrays, count)

    def _only_input(self, value: ArrayLike, named: Mapping[str, Any]) -> dict[str, Any]:
        if len(self.inputs) != 1 or named:
            raise ArgumentError(
                f"Inputs are given by name: {describe(self.inputs)}. Received: {type(value).__name__} without a name, "
                "which only the value of the one input may be. Example: "
                f"model({next(iter(self.inputs), 'x')}=...)"
            )
        return dict.fromkeys(self.inputs, value)

    def _outputs_of(self, arrays: dict[str, _Array], count: int | None) -> dict[str, _Array]:
        values = self._host.values(arrays)
        if self._info.tied:
            check_ties(self.name, self._host.infos, values)
        # Otherwise JAX narrows 64-bit inputs, and refuses to call a program that was exported for wider ones.
        with jax.enable_x64(self._info.x64):
            program = self._program(count)
            results = program(self._variables(), self._host.program_inputs(values))
        arrays = {name: np.asarray(result) for name, result in results.items()}
        return {name: _output(name, o, arrays, values) for name, o in self._info.outputs.items()}

    def _program(self, count: int | None) -> Callable[..., Any]:
        platform = export.default_export_platform()
        # The first that fits: one for any number, or one for a single example and one for more.
        for info, program in self._programs:
            if not info.takes(count):
                continue
            if platform in info.platforms:
                return program
            why = info.left_out.get(platform, "it was not asked for")
            raise UnsupportedError(
                f"The signature {self.name!r} was exported for {', '.join(info.platforms)}. Received: a call on "
                f"{platform} ({why}). Export it on such a machine, or set JAX_PLATFORMS={info.platforms[0]}."
            )
        raise ArgumentError(f"The signature {self.name!r} has no program for {count} examples. Export the model again.")

    def _outputs_of_none(self) -> dict[str, _Array]:
        # A symbol of jax.export stands for at least one example, so no program takes none.
        single = next((name for name, output in self._info.outputs.items() if not output.batched), None)
        if single is not None:
            raise ArgumentError(
                f"The signature {self.name!r} needs at least one example, for its output {single!r}. Received: none."
            )
        dtypes = {name: object if o.is_text else jnp.dtype(o.dtype) for name, o in self.outputs.items()}
        return {name: np.zeros((0, *(s or 0 for s in o.shape[1:])), dtypes[name]) for name, o in self.outputs.items()}

    def __repr__(self) -> str:
        return f"Signature({self.name!r}: {describe(self.inputs)} -> {describe(self.outputs)})"


class _Host:
    """Work on the host ahead of a program: examples are parsed, and words looked up.

    Attributes:
        infos: Shapes and types of the values that it starts with, by path.
    """

    def __init__(self, info: SignatureInfo) -> None:
        self._parse = {name: _parsing.from_json(spec) for name, spec in info.parse.items()}
        self.infos = program_infos_by_path(info.inputs, self._parse)
        self._lookups = [(k.source, _host_functions.from_json(k.function), k.dtype) for k in info.lookups]
        for source, _, _ in self._lookups:
            if source not in self.infos or not self.infos[source].is_text:
                raise ArgumentError(f"it looks up {source!r}, which is no text")

    def values(self, arrays: Mapping[str, _Array]) -> dict[str, _Array]:
        """Returns all values by path: inputs, and what is in examples."""
        values = {name: array for name, array in arrays.items() if name not in self._parse}
        for name, spec in self._parse.items():
            values.update({f"{name}/{k}": v for k, v in _parsing.parse(arrays[name], spec).items()})
        return values

    def program_inputs(self, values: Mapping[str, _Array]) -> dict[str, _Array]:
        """Returns what a program takes: numbers, and integers for text."""
        numbers = {path: _narrow(path, values[path]) for path, info in self.infos.items() if not info.is_text}
        # Numbered, because a function may look the same text up in several ways.
        for number, (source, function, dtype) in enumerate(self._lookups):
            numbers[lookup_path(number, source)] = np.asarray(function(values[source])).astype(dtype)
        return numbers


def _narrow(path: str, array: _Array) -> _Array:
    """Returns an array as JAX takes it: with 64 bits only where programs compute with them."""
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    # Floats are rounded, which is what a narrower program means; integers would become others.
    if dtype != array.dtype and array.dtype.kind in "iu" and not fits(array, dtype):
        raise ArgumentError(
            f"The program computes with {dtype.name}. Received in {path!r}: integers that are larger. Export the model "
            "with jax_enable_x64, or give smaller numbers."
        )
    return array.astype(dtype, copy=False)


def _output(name: str, output: OutputInfo, arrays: Mapping[str, _Array], values: Mapping[str, _Array]) -> _Array:
    if output.source is not None:
        return values[output.source]
    if output.vocabulary is None:
        return arrays[name]
    words, ids = np.empty(len(output.vocabulary), object), arrays[name]
    words[:] = output.vocabulary
    # numpy's own error would name neither the output nor the function that gave the ids.
    if ids.size and not (-len(words) <= ids.min() and ids.max() < len(words)):
        raise ArgumentError(
            f"The output {name!r} is words of a vocabulary of {len(words)}. Received from the program: positions from "
            f"{ids.min()} to {ids.max()}. Correct the ids that the model_fn gives to words(ids, vocabulary)."
        )
    return words[ids]


class LoadedModel:
    """An export, loaded: call it, or one of its signatures.

    Attributes:
        directory: Where it was loaded from.
        tags: What was loaded: "serve", "train" or "eval".
        signatures: By name.
        variables: Arrays by name.
        assets: The paths of files that were copied into the export, by name.

    Source: what tf.saved_model.load returns.
    """

    def __init__(self, directory: Path, files: Files, tags: tuple[str, ...]) -> None:
        self.directory = str(directory)
        self.tags = tags
        infos = files.description.variables
        # Views of the stored bits: bfloat16, which numpy's files do not know, is kept as integers.
        self.variables = {name: array.view(jnp.dtype(infos[name].dtype)) for name, array in files.variables.items()}
        assets = directory / _names.ASSETS_DIRECTORY
        self.assets = {str(p.relative_to(assets)): str(p) for p in sorted(assets.rglob("*")) if p.is_file()}
        self._stored = files.variables
        self._on_device: dict[str, jax.Array] | None = None
        self._lock = threading.Lock()
        signatures = {n: s for n, s in files.description.signatures.items() if s.tags == tags}
        self.signatures = {n: Signature(n, s, files.programs, self._on_device_once) for n, s in signatures.items()}

    def __call__(self, inputs: Any = None, /, **named: Any) -> dict[str, _Array]:
        """Calls the signature "serving_default", or the only one.

        Args:
            inputs: As for `Signature`.
            named: As for `Signature`.

        Raises:
            ArgumentError: If there are several signatures and none is the default; and as `Signature`.
        """
        if len(self.signatures) == 1:
            return next(iter(self.signatures.values()))(inputs, **named)
        if _names.DEFAULT_SERVING_SIGNATURE_DEF_KEY not in self.signatures:
            raise ArgumentError(
                f"A model is called by its signature {_names.DEFAULT_SERVING_SIGNATURE_DEF_KEY!r}. This one has "
                f"{', '.join(map(repr, self.signatures))}. Call model.signatures[...](...)."
            )
        return self.signatures[_names.DEFAULT_SERVING_SIGNATURE_DEF_KEY](inputs, **named)

    def _on_device_once(self) -> dict[str, jax.Array]:
        # At the first call: a model that is only looked at takes no memory of a device. Servers call from any thread.
        with self._lock:
            if self._on_device is None:
                self._on_device = {name: jnp.asarray(array) for name, array in self._stored.items()}
            return self._on_device

    def __repr__(self) -> str:
        return f"LoadedModel({self.directory!r}: {', '.join(map(repr, self.signatures.values()))})"


def load(
    export_dir: str | bytes | os.PathLike[str], tags: str | Iterable[str] | None = None, safe_mode: bool = True
) -> LoadedModel:
    """Loads an export; neither the model's code nor Keras is needed.

    Args:
        export_dir: The directory of the export.
        tags: Which part of it: "serve", "train" or "eval"; `None` for "serve", or the only one.
        safe_mode: Whether to refuse programs with operations that reach beyond their own arrays, such as calls of
            LAPACK: among the functions of JAX and Keras only those of linear algebra (`qr`, `svd`, `eigh`, `cholesky`,
            `inv`, `solve`) make them. Turn it off for exports of your own.

    Raises:
        ArgumentError: If there is no export, it is damaged or of another version, it has no such part, or, in safe
            mode, holds such an operation.

    Source: tf.saved_model.load.
    """
    directory = Path(os.fsdecode(export_dir))
    files = read(directory, safe_mode)
    try:
        return LoadedModel(directory, files, _choose_tags(files, tags))
    except LockstepError as error:
        raise unusable_error(directory, str(error).removesuffix(".")) from error


def _choose_tags(files: Files, tags: str | Iterable[str] | None) -> tuple[str, ...]:
    # TensorFlow wants the set of tags; an export of one part is unambiguous without.
    known = list(dict.fromkeys(signature.tags for signature in files.description.signatures.values()))
    if not known:
        # Files and variables alone: they are for every use.
        return ()
    if tags is None:
        tags = known[0] if len(known) == 1 else _names.SERVING
    wanted = {tags} if isinstance(tags, str) else set(tags)
    chosen = next((found for found in known if set(found) == wanted), None)
    if chosen is None:
        raise ArgumentError(f"it has parts with the tags {known}, and none with {sorted(wanted)}")
    return chosen
