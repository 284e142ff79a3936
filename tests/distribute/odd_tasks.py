"""What the last task of a cluster does differently, in tests of programs that all tasks must have alike."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

import lockstep as ls

Strategy = ls.distribute.Strategy


def _is_odd() -> bool:
    return jax.process_index() == jax.process_count() - 1


def _failure(call: Any) -> dict[str, np.ndarray]:
    """The type and the text of the error that a call raises."""
    try:
        call()
    except Exception as error:
        return {"type": np.array(type(error).__name__), "text": np.array(str(error))}
    return {"type": np.array("none"), "text": np.array("")}


def step(x: Any, power: Any = 2, scale: Any = None) -> Any:
    """Of a replica."""
    mean = ls.distribute.get_replica_context().all_reduce("mean", x**power)
    return mean if scale is None else mean * scale


def run(strategy: Strategy, what: str) -> dict[str, np.ndarray]:
    """A program of `run` that is another one on the last task."""
    odd = _is_odd()
    x = np.ones((4 if odd and what == "shape" else 3,), "float16" if odd and what == "dtype" else "float32")
    kept = np.full((2, 1), 1.0 + odd, np.float32)
    calls = {
        "shape": lambda: strategy.run(step, (x,)),
        "dtype": lambda: strategy.run(step, (x,)),
        "number": lambda: strategy.run(step, (x,), {"power": 3 if odd else 2}),
        "code": lambda: strategy.run(_other if odd else step, (x,)),
        "constant": lambda: strategy.run(lambda x: step(x, scale=kept), (x,)),
    }
    return _failure(calls[what])


def _other(x: Any) -> Any:
    return -step(x)


_other.__qualname__ = "step"


def unused(strategy: Strategy) -> dict[str, np.ndarray]:
    """What differs and changes nothing in the program is each task's own affair."""
    found = strategy.run(lambda x, name: (step(x), name), (np.ones(3, np.float32), f"task {jax.process_index()}"))
    return {"mean": np.asarray(found[0]), "name": np.array(found[1])}


def variables(strategy: Strategy) -> dict[str, np.ndarray]:
    """The last task has made a larger variable."""
    with strategy.scope():
        weights = keras.Variable(np.ones(4 if _is_odd() else 3, "float32"), name="weights")
    return _failure(lambda: strategy.run(lambda: weights.assign(weights * 2.0)))


def program(strategy: Strategy, what: str) -> dict[str, np.ndarray]:
    """A `Program` that is another one on the last task."""
    odd = _is_odd()

    def own_step(state: Any, batch: Any) -> Any:
        grown = state["w"] * (state["rate"] + (odd and what == "code")) + batch.mean()
        return {**state, "w": grown}, {"loss": grown.sum()}

    state = {"w": jnp.ones(3), "rate": 0.3 if odd and what == "static" else 0.2}
    batch = np.ones((8 if odd and what == "batch" else 4, 2), np.float32)
    trainer = ls.training.Program(own_step, strategy)
    return _failure(lambda: trainer(state, batch))
