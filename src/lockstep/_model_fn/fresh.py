"""Keras' and Python's global state, the same at the start of each call of a model_fn."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Generator
from typing import Any

from keras.src.backend.common import global_state

from lockstep._runtime import randomness

# What Keras keeps globally that a call must not see of others, nor leave behind: counters behind automatic names, the
# generator behind `seed=None`, variables that wait for their first value, and the names that are open.
_FRESH: dict[str, Callable[[], Any]] = {
    "object_name_uids": lambda: defaultdict(int),
    "global_seed_generator": lambda: None,
    "uninitialized_variables": list,
    "name_scope_stack": lambda: None,
}


@contextlib.contextmanager
def fresh_state(random_state: dict[str, Any]) -> Generator[None]:
    """While open, automatic names start anew, and random numbers from `random_state`."""
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
