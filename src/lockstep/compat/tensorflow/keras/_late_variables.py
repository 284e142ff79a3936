"""Variables that an optimizer meets after it was built: an optimizer of several models, or of a model that grows.

Optimizers of `tf.keras.optimizers.legacy` take them; Keras 3 refuses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from lockstep._types import Optimizer, Variable

_ALL = "_variables"
_INDICES = "_trainable_variables_indices"


def take_late(optimizer: Optimizer, variables: Sequence[Variable]) -> None:
    """Makes an optimizer that is built know variables that it does not know; what it keeps of the others stays."""
    known = vars(optimizer).get(_INDICES)
    if not optimizer.built or known is None:
        return
    late = [v for v in variables if id(v) not in known]
    if not late:
        return
    held = vars(optimizer)
    count = len(optimizer._trainable_variables)
    slots = {name: list(value) for name, value in held.items() if _is_slots(value, count) and name != _ALL}
    single = {name: value for name, value in held.items() if isinstance(value, keras.Variable)}
    # `build` makes everything anew, for what it is given.
    held["built"], held[_INDICES] = False, {}
    with keras.name_scope(optimizer.name, caller=optimizer):
        optimizer.build(late)
    for name, before in slots.items():
        held[name] = [*before, *held[name]]
    held.update(single)
    held[_INDICES] = {id(v): number for number, v in enumerate(optimizer._trainable_variables)}


def _is_slots(value: Any, count: int) -> bool:
    """Returns whether an attribute has something for each variable."""
    return isinstance(value, list) and len(value) == count and any(isinstance(v, keras.Variable) for v in value)
