"""The names of summaries."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterable
from typing import Any

from keras.src.backend.common.name_scope import current_path

from lockstep.estimator._model_fn.records import SummaryOp
from lockstep.estimator._model_fn.scope import ModelScope

_log = logging.getLogger("lockstep")
_NOT_IN_TAGS = re.compile(r"[^-/\w.]")


def tag_of(scope: ModelScope, name: str, family: str | None) -> str:
    """Returns the tag of a new summary: in Keras' name scope, and unlike those that the call has made.

    Args:
        scope: The call of a model_fn.
        name: What the summary is called in its name scope.
        family: Comes before all of it.
    """
    name, family = _clean(name), _clean(family) if family is not None else None
    parts = (family, current_path(), family, name)
    return _unique("/".join(part for part in parts if part), _taken(scope))


def _clean(name: str) -> str:
    cleaned = _NOT_IN_TAGS.sub("_", name).lstrip("/")
    if cleaned != name:
        _log.info("Summary name %s is illegal; using %s instead.", name, cleaned)
    return cleaned


def _taken(scope: ModelScope) -> set[str]:
    collected: Iterable[Any] = itertools.chain(scope.recorded.summaries, *scope.collections.values())
    return {op.tag.lower() for op in collected if isinstance(op, SummaryOp)}


def _unique(tag: str, taken: set[str]) -> str:
    found, number = tag, 0
    # As in TensorFlow, names that differ in case alone are the same.
    while found.lower() in taken:
        number += 1
        found = f"{tag}_{number}"
    return found
