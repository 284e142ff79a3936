"""Global state of Keras and Python, reset for each call of a model_fn."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Generator
from typing import Any

from keras.src.backend.common import global_state

from lockstep._engine.runtime import randomness

# Keras' global state that must not leak into or out of a call: counters of automatic names, the generator of
# `seed=None`, variables that wait for their first value, and open name scopes. Counters matter most: with them, a
# second trace would name its layers dense_1 instead of dense, and its variables would not be those of the first.
_FRESH: dict[str, Callable[[], Any]] = {
    "object_name_uids": lambda: defaultdict(int),
    "global_seed_generator": lambda: None,
    "uninitialized_variables": list,
    "name_scope_stack": lambda: None,
}


@contextlib.contextmanager
def fresh_state(random_state: dict[str, Any]) -> Generator[None]:
    """Restarts automatic names and sets the random state, within the context."""
    before = {name: global_state.get_global_attribute(name) for name in _FRESH}
    random_before = randomness.snapshot()
    for name, make in _FRESH.items():
        global_state.set_global_attribute(name, make())
    randomness.restore(random_state)
    try:
        yield
    finally:
        randomness.restore(random_before)
        for name, value in before.items():
            global_state.set_global_attribute(name, value)
