"""The optimizer's state in a file of weights, and a model that has yet to make a step."""

from __future__ import annotations

import os
import warnings
from typing import Any

import h5py

from lockstep._types import Model


def make_ready(model: Model, path: str | os.PathLike[str]) -> None:
    """Creates the variables of the model's optimizer, if the file has values for them.

    Keras creates them in the first step, and refuses to load values for variables that are not there. Keras 2 kept the
    values until then.
    """
    optimizer = _optimizer(model)
    if optimizer is not None and not optimizer.built and model.built and saved_variables(path) > 0:
        optimizer.build(model.trainable_variables)


def not_to_load(model: Model, path: str | os.PathLike[str]) -> list[Any]:
    """Returns the model's optimizer, if the file has the state of another kind of optimizer, or none."""
    optimizer = _optimizer(model)
    if optimizer is None:
        return []
    saved = saved_variables(path)
    if saved == len(optimizer.variables):
        return []
    if saved:
        warnings.warn(
            f"{path} has {saved} variables of an optimizer, {type(optimizer).__name__} has {len(optimizer.variables)}: "
            "the weights are restored, the optimizer starts anew.",
            stacklevel=2,
        )
    return [optimizer]


def saved_variables(path: str | os.PathLike[str]) -> int:
    """Returns how many variables of an optimizer a file of weights has."""
    with h5py.File(path, "r") as file:
        group: Any = file.get("optimizer/vars")
        return 0 if group is None else len(group)


def _optimizer(model: Model) -> Any:
    optimizer = getattr(model, "optimizer", None)
    return optimizer if hasattr(optimizer, "variables") else None
