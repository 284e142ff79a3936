"""tf.compat.v1.estimator: lockstep.estimator, with TensorFlow 1's canned estimators."""

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from typing import Any as _Any

from lockstep.compat.tensorflow import _forward, _missing

# TensorFlow 1's forms go first: their losses are sums, TensorFlow 2's are means.
_HOMES = ("lockstep.estimator._canned._v1", "lockstep.estimator")
_PARTS = {name: f"lockstep.compat.tensorflow.estimator.{name}" for name in ("experimental", "export", "inputs")}

__all__: list[str] = [*_PARTS]
__all__ += [name for name in _forward.names_of(*_HOMES) if name not in _PARTS]

_parts = _missing.getter(__name__, _PARTS)
_names = _forward.getter(__name__, _HOMES)


def __getattr__(name: str) -> _Any:
    return _parts(name) if name in _PARTS else _names(name)


__dir__ = _missing.lister(globals(), dict.fromkeys(__all__, ""))
