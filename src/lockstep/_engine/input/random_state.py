"""Random states that data and programs draw from: Python's, numpy's, Keras' global one, and torch's where it is loaded.

A pass over data that draws from them comes again, in the same order, from the state that it began with.
"""

from __future__ import annotations

import base64
import sys
from typing import Any

import numpy as np
from keras.src.backend.common import global_state
from keras.src.random import seed_generator

from lockstep._engine.runtime import randomness
from lockstep._engine.runtime.runtime import Runtime

_KERAS = seed_generator.GLOBAL_SEED_GENERATOR


def snapshot() -> dict[str, Any]:
    """Returns the random states as plain JSON values."""
    return {**randomness.snapshot(), "keras": _of_keras(), "torch": _of_torch()}


def restore(state: dict[str, Any]) -> None:
    """Makes `state`, from `snapshot`, the random state of this process."""
    _restore_keras(state["keras"])  # First: making a generator draws from Python's.
    _restore_torch(state["torch"])
    randomness.restore(state)


def follow_chief(runtime: Runtime, topic: str) -> None:
    """Makes the chief's random state everyone's; all tasks call it, with the same topic."""
    if not runtime.is_alone:
        restore(runtime.all_gather_object(topic, snapshot() if runtime.is_chief else None)[0])


def _of_keras() -> list[int] | None:
    generator = global_state.get_global_attribute(_KERAS)
    return None if generator is None else np.asarray(generator.state).tolist()


def _restore_keras(state: list[int] | None) -> None:
    if state is None:
        global_state.set_global_attribute(_KERAS, None)
        return
    variable = seed_generator.global_seed_generator().state
    variable.assign(np.asarray(state, variable.dtype))


def _of_torch() -> str | None:
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    return base64.b64encode(torch.random.get_rng_state().numpy().tobytes()).decode()


def _restore_torch(state: str | None) -> None:
    torch = sys.modules.get("torch")
    if torch is not None and state is not None:
        found = np.frombuffer(base64.b64decode(state), np.uint8).copy()
        torch.random.set_rng_state(torch.from_numpy(found))
