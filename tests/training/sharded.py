"""Own loops whose replicas divide the optimizer's state, run on any layout."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import lockstep as ls
from tests.engine.keras.sharded_cases import dividing

_OPTIMIZER = optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(1e-2))
# Batches of 12, of which the last has 5 rows.
_ROWS, _BATCH = 65, 12


def step(state: Any, batch: Any) -> tuple[Any, Any]:
    def loss_of(params: Any) -> Any:
        return jnp.mean((jnp.tanh(batch[0] @ params["a"]) @ params["b"] - batch[1]) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(state["params"])
    updates, slots = _OPTIMIZER.update(gradients, state["slots"], state["params"])
    return {"params": optax.apply_updates(state["params"], updates), "slots": slots}, {"loss": loss}


def first_state() -> Any:
    rng = np.random.default_rng(0)
    shapes = {"a": (6, 32), "b": (32, 3)}
    params = {name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name, shape in shapes.items()}
    return {"params": params, "slots": _OPTIMIZER.init(params)}


def dataset() -> Any:
    rng = np.random.default_rng(1)
    x, y = (rng.normal(size=(_ROWS, width)).astype("float32") for width in (6, 3))
    return ls.data.Dataset.from_tensor_slices((x, y)).batch(_BATCH)


def program_of(strategy: Any, is_divided: bool = True) -> Any:
    return ls.training.Program(step, dividing(strategy, is_divided), optimizer_state=lambda state: state["slots"])


def named(state: Any) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_flatten_with_path(state)[0]
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def run(strategy: Any, is_divided: bool = True, directory: str | None = None, epochs: int = 2) -> dict[str, np.ndarray]:
    """Trains; the chief alone looks at the whole state on the way."""
    seen: dict[str, np.ndarray] = {}

    def look(training: Any, logs: Any) -> None:
        found = named(training.state)
        seen.update({f"at {training.step}: {name}": value for name, value in found.items()})

    program = program_of(strategy, is_divided)
    arguments: dict[str, Any] = {"checkpoint_dir": directory, "save_every": 4, "verbose": 0}
    state = program.fit(first_state(), dataset(), epochs=epochs, callbacks=[ls.training.Every(3, look)], **arguments)
    return named(state) | seen


def singly(strategy: Any, is_divided: bool = True) -> dict[str, np.ndarray]:
    """The same in a loop around single steps; and what each device then holds of the optimizer's state."""
    program, state = program_of(strategy, is_divided), first_state()
    for _ in range(2):
        for batch in program.batches(dataset()):
            state, _ = program(state, batch)
    parts = [leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(state["slots"])]
    return named(program.local(state)) | {"bytes": np.asarray(sum(parts))}
