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
    generator = global_state.get_global_attribute(_KERAS)
    keras = None if generator is None else np.asarray(generator.state).tolist()
    # A torch that nobody has imported draws nothing, and takes seconds to import.
    torch: Any = sys.modules.get("torch")
    torch_state = None if torch is None else base64.b64encode(torch.random.get_rng_state().numpy().tobytes()).decode()
    return {**randomness.snapshot(), "keras": keras, "torch": torch_state}


def restore(state: dict[str, Any]) -> None:
    """Makes `state`, from `snapshot`, the random state of this process."""
    # Keras' first: making its generator draws from Python's.
    if state["keras"] is None:
        global_state.set_global_attribute(_KERAS, None)
    else:
        variable = seed_generator.global_seed_generator().state
        variable.assign(np.asarray(state["keras"], variable.dtype))
    torch: Any = sys.modules.get("torch")
    if torch is not None and state["torch"] is not None:
        content = np.frombuffer(base64.b64decode(state["torch"]), np.uint8).copy()
        torch.random.set_rng_state(torch.from_numpy(content))
    randomness.restore(state)


def follow_chief(runtime: Runtime, topic: str) -> None:
    """Makes the chief's random state everyone's; a collective call, with the same topic."""
    if not runtime.is_alone:
        restore(runtime.all_gather_object(topic, snapshot() if runtime.is_chief else None)[0])
