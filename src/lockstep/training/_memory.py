"""The memory of a training step, known before anything is trained."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._engine.keras import programs, trainer
from lockstep._engine.keras.ownership import ownership
from lockstep._engine.keras.state import TRAIN, ModelState
from lockstep._engine.step.memory import bytes_on_device
from lockstep._engine.step.program import StepProgram
from lockstep._types import Model, PyTree
from lockstep.errors import ArgumentError, UnsupportedError


@dataclass(frozen=True)
class MemoryEstimate:
    """The bytes that a step of training takes on each device.

    Attributes:
        weights: Of trainable and other variables of the model, and of its metrics.
        optimizer: Of the optimizer's variables, or of this device's part of them; and of what a strategy keeps besides,
            such as the errors of compressed gradients.
        batch: Of this device's part of a batch.
        temporary: Of what lives within a step: activations, gradients. XLA's own account.
        outputs: Of results that do not lie in the place of the state.
    """

    weights: int
    optimizer: int
    batch: int
    temporary: int
    outputs: int

    @property
    def total(self) -> int:
        """Returns the sum: what a step needs at once."""
        return self.weights + self.optimizer + self.batch + self.temporary + self.outputs

    def __str__(self) -> str:
        """Returns a line for people, in MiB."""
        parts = ", ".join(f"{name} {value / 2**20:.1f}" for name, value in vars(self).items())
        return f"{self.total / 2**20:.1f} MiB on each device: {parts}"


def estimate_memory(model: Model, x: PyTree, y: PyTree = None, sample_weight: PyTree = None) -> MemoryEstimate:
    """Returns the memory that a step of `fit` takes on each device; compiles the step, and trains nothing.

    On a CPU all devices of a process share its memory: add theirs. Input that is prefetched, and the memory of
    libraries, come on top. All workers call this together.

    Args:
        model: A compiled model that was made under a strategy's scope.
        x: Input of a global batch, as for `train_on_batch`; or shapes and dtypes of it (`jax.ShapeDtypeStruct`), for
            batches that this process could not hold.
        y: Targets, alike.
        sample_weight: Weights of examples, alike.

    Raises:
        ArgumentError: If the model was not made under a strategy's scope.
        UnsupportedError: If its step is not compiled (`run_eagerly`), or runs on parameter servers.

    Source: `jax.stages.Compiled.memory_analysis`.
    """
    owned = ownership(model)
    if owned is None:
        raise ArgumentError(
            "Memory is estimated for the devices of a strategy. Received: a model that was made under no scope. Make "
            "and compile it under `with strategy.scope():`."
        )
    if owned.servers is not None:
        raise UnsupportedError(
            "Memory is estimated for steps that have their state on the devices. Received: a model of a "
            "ParameterServerStrategy. Estimate the same model under a OneDeviceStrategy."
        )
    model._assert_compile_called("estimate_memory")
    batch = jax.tree.map(_as_shape, (x, y, sample_weight))
    model._symbolic_build(data_batch=jax.tree.map(lambda a: jnp.zeros((1, *a.shape[1:]), a.dtype), batch))
    program = programs.train_program(model, owned)
    if not isinstance(program, StepProgram):
        raise UnsupportedError(
            "Memory is XLA's account of a compiled step. Received: a model with run_eagerly=True. Compile it without."
        )
    owned.sync_point()
    with owned.replicas.runtime.collective_region("estimate_memory"):
        shapes = ModelState(model, owned, program, TRAIN).shapes()
        found = program.memory(shapes, trainer.canonical_batch(batch))
    trainable, others, _, metrics = shapes
    weights = sum(leaf.dtype.itemsize * math.prod(leaf.shape) for leaf in (*trainable, *others, *metrics))
    return MemoryEstimate(
        weights=weights,
        # The rest of what lies there between steps: each strategy has its own way to carry it.
        optimizer=bytes_on_device(found.carried) - weights,
        batch=bytes_on_device(found.batch),
        temporary=found.temporary,
        outputs=found.outputs,
    )


def _as_shape(array: Any) -> jax.ShapeDtypeStruct:
    if isinstance(array, jax.ShapeDtypeStruct):
        return array
    # As steps take it: 64 bits only where JAX has them enabled.
    array = np.asarray(array)
    return jax.ShapeDtypeStruct(array.shape, jax.dtypes.canonicalize_dtype(array.dtype))
