"""First values of a model_fn's variables from a checkpoint: `init_from_checkpoint`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from lockstep._types import Variable
from lockstep.checkpoint import CheckpointReader, load_checkpoint
from lockstep.errors import ArgumentError
from lockstep.estimator._model_fn.scope import ModelScope, demand

AssignmentMap: TypeAlias = Mapping[str, Any] | Sequence[tuple[str, Any]]
_SCOPE = "/"


def init_from_checkpoint(ckpt_dir_or_file: str | os.PathLike[str], assignment_map: AssignmentMap) -> None:
    """Lets variables that a model_fn has made begin with the values in a checkpoint, of lockstep or of TensorFlow.

    Training that goes on from a checkpoint of its own is not changed. The file must be there for every task; the chief
    reads its values.

    Args:
        ckpt_dir_or_file: The checkpoint's name, or a directory, for its newest one.
        assignment_map: What to begin with what: from names in the checkpoint to names here, or variables. Names that
            end with "/" stand for all variables below them; "/" alone for the root.

    Raises:
        ArgumentError: If a name is not in the checkpoint or not here, or shapes differ.
        CheckpointError: If the checkpoint is not there, or is damaged.
        StartupOrderError: Outside of a model_fn.

    Source: tf.compat.v1.train.init_from_checkpoint.

    Examples:
        >>> def model_fn(features, labels, mode):
        ...     net = keras.layers.Dense(8, name="encoder")(features["x"])
        ...     init_from_checkpoint(prefix, {"dense/": "encoder/"})
        ...     return make_spec(mode, net, labels)
    """
    scope = demand("init_from_checkpoint")
    reader = load_checkpoint(ckpt_dir_or_file)
    shapes = reader.get_variable_to_shape_map()
    pairs = assignment_map.items() if isinstance(assignment_map, Mapping) else assignment_map
    for theirs, ours in pairs:
        for name, key in _pairs(scope, theirs, ours):
            if not reader.has_tensor(name):
                raise ArgumentError(
                    f"assignment_map names variables of the checkpoint. Received: {name!r}, for {key}; "
                    f"{os.fspath(ckpt_dir_or_file)} has {', '.join(sorted(shapes)[:8])}... list_variables lists them."
                )
            shape = tuple(scope.variables[key].shape)
            stored = tuple(shapes.get(name.removesuffix(":0"), shape))
            if stored != shape:
                raise ArgumentError(
                    f"A variable begins with a value of its own shape. Received: {name!r}, of shape {stored}, for "
                    f"{key}, which has {shape}. Leave it out of assignment_map."
                )
            scope.begin_with(key, _reading(reader, name))


def _reading(reader: CheckpointReader, name: str) -> Callable[[], np.ndarray[Any, Any]]:
    # Read when training begins anew, and by the chief alone: not in each trace of the model_fn.
    return lambda: reader.get_tensor(name)


def _pairs(scope: ModelScope, theirs: str, ours: str | Variable) -> Iterator[tuple[str, str]]:
    """Yields names in the checkpoint and the keys of variables here."""
    if not isinstance(ours, str):
        yield theirs, scope.key_of(ours)
        return
    known = list(scope.variables)
    if not ours.endswith(_SCOPE):
        if ours.removesuffix(":0") not in known:
            raise _unknown(ours, known)
        yield theirs, ours.removesuffix(":0")
        return
    if theirs and not theirs.endswith(_SCOPE):
        raise ArgumentError(
            f"A scope begins with a scope, and both end with '/'. Received: {theirs!r} for {ours!r}. Add the '/'."
        )
    # The root, "/", stands before all names.
    start, source = ours.removeprefix(_SCOPE), theirs.removeprefix(_SCOPE)
    keys = [key for key in known if key.startswith(start)]
    if not keys:
        raise _unknown(ours, known)
    for key in keys:
        yield source + key.removeprefix(start), key


def _unknown(name: str, known: Sequence[str]) -> ArgumentError:
    return ArgumentError(
        f"assignment_map names variables that the model_fn has made so far. Received: {name!r}; there are "
        f"{', '.join(known) or 'none'}. Call init_from_checkpoint after the layers."
    )
