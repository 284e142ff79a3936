"""Datasets of `lockstep.data` as datasets of `lockstep.compat.tensorflow`."""

from __future__ import annotations

from typing import Any

import lockstep.data
from lockstep._types import Tensor
from lockstep.compat.tensorflow._tensor import as_tensor
from lockstep.compat.tensorflow.data._dataset import from_lockstep


def to_tensorflow(data: Tensor) -> Any:
    """Returns datasets and arrays, in tuples, lists and dicts, as datasets and tensors of compat.tensorflow."""
    if isinstance(data, dict):
        return {key: to_tensorflow(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return type(data)(map(to_tensorflow, data))
    return from_lockstep(data) if isinstance(data, lockstep.data.Dataset) else as_tensor(data)
