"""tf.train: examples in records, and the description of a cluster."""

# ruff: noqa: F822

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from typing import Any as _Any

from lockstep.cluster_resolver import ClusterSpec as ClusterSpec
from lockstep.compat.tensorflow import _missing
from lockstep.compat.tensorflow._bound import bound as _bound
from lockstep.compat.tensorflow.keras._saves import latest_checkpoint as latest_checkpoint

# What lockstep.data has under the same names.
_DATA = (
    *("BytesList", "Example", "Feature", "FeatureList", "FeatureLists", "Features", "FloatList", "Int64List"),
    "SequenceExample",
)

__all__ = [
    "BytesList",
    "ClusterSpec",
    "Example",
    "Feature",
    "FeatureList",
    "FeatureLists",
    "Features",
    "FloatList",
    "Int64List",
    "SequenceExample",
    "latest_checkpoint",
]

_other = _missing.getter(__name__)


def __getattr__(name: str) -> _Any:
    found = _bound(name) if name in _DATA else None
    return _other(name) if found is None else found


__dir__ = _missing.lister(globals(), dict.fromkeys(_DATA, ""))
