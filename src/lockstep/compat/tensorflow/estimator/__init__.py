"""tf.estimator: lockstep.estimator itself."""

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from typing import Any as _Any

from lockstep.compat.tensorflow import _forward, _missing

_HOME = "lockstep.estimator"
# Of TensorFlow 2, and those of TensorFlow 1 as well.
_LAZY = {name: f"{__name__}.{name}" for name in ("experimental", "export", "inputs")}

__all__ = [*_LAZY]
__all__ += [name for name in _forward.names_of(_HOME) if name not in _LAZY]

_parts = _missing.getter(__name__, _LAZY)
_names = _forward.getter(__name__, (_HOME,))


def __getattr__(name: str) -> _Any:
    return _parts(name) if name in _LAZY else _names(name)


__dir__ = _missing.lister(globals(), dict.fromkeys(__all__, ""))
