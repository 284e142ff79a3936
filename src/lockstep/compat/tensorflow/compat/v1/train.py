"""tf.compat.v1.train: what belongs to model functions is lockstep.estimator's, in versions that have it."""

from __future__ import annotations

import importlib as _importlib
import importlib.util as _util
from typing import Any as _Any

from lockstep.compat.tensorflow import _missing

__all__: list[str] = []

_other = _missing.getter(__name__)
_root = "lockstep.compat.tensorflow.train"


def __getattr__(name: str) -> _Any:
    if name.startswith("__"):
        return _other(name)
    for module in ("lockstep.estimator.train", "lockstep.estimator"):
        if _missing.has_estimator() and _util.find_spec(module):
            found = getattr(_importlib.import_module(module), name, None)
            if found is not None:
                return found
    train: _Any = _importlib.import_module(_root)
    return getattr(train, name) if name in train.__all__ else _other(name)
