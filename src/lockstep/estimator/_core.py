"""The core of an Estimator: its model_fn, checkpoints and compiled programs."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Callable, Generator, Mapping
from typing import Any

import jax
import numpy as np

from lockstep import checkpoint
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.replicas import Replicas
from lockstep._types import PyTree
from lockstep.distribute.internal import default_devices
from lockstep.errors import ArgumentError
from lockstep.estimator import _restoring
from lockstep.estimator._compiled_model_fn import CompiledModelFn
from lockstep.estimator._estimator_spec import EstimatorSpec
from lockstep.estimator._input_fns.source import Input
from lockstep.estimator._inspection import call_model_fn
from lockstep.estimator._model_fn.variables import Variables
from lockstep.estimator._run_config import RunConfig
from lockstep.estimator._types import Strategy
from lockstep.estimator._warm_start import WarmStartSettings, warm_start_values

_log = logging.getLogger("lockstep")


class EstimatorCore:
    """The model_fn, settings and compiled programs behind an Estimator's methods.

    Args:
        model_fn: The model function.
        config: The RunConfig, with a model_dir.
        params: The model_fn's parameters; copied.
        warm_start: Settings for first values, or `None`.

    Attributes:
        config: The configuration.
        warm_start: The warm start settings.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any],
        config: RunConfig,
        params: Mapping[str, Any],
        warm_start: WarmStartSettings | None,
    ) -> None:
        self.model_fn = model_fn
        self.config = config
        self.warm_start = warm_start
        self._params = copy.deepcopy(dict(params))
        self._cache: dict[Any, CompiledModelFn] | None = None
        self._first_device: Replicas | None = None

    @property
    def model_dir(self) -> str:
        """Returns the directory of checkpoints."""
        assert self.config.model_dir is not None
        return self.config.model_dir

    @property
    def params(self) -> dict[str, Any]:
        """Returns a copy of the parameters."""
        return copy.deepcopy(self._params)

    def latest_checkpoint(self) -> str | None:
        """Returns the path of the latest checkpoint, or `None`."""
        return checkpoint.latest_checkpoint(self.model_dir)

    def replicas_of(self, strategy: Strategy | None) -> tuple[Replicas, bool]:
        """Returns a strategy's replicas, or this process' first device; and whether there is a strategy."""
        if strategy is None:
            return self.first_device_replicas(), False
        return strategy._demanded_replicas(), True

    def first_device_replicas(self) -> Replicas:
        """Returns this process' first device as replicas."""
        if self._first_device is None:
            self._first_device = Replicas(Runtime(), default_devices()[:1])
        return self._first_device

    def compile(self, mode: str, replicas: Replicas, input: Input) -> CompiledModelFn:
        """Traces and compiles the model_fn for a mode and the batches of an input."""
        example = input.source.peek()
        # By shapes without the batch size: programs are compiled per batch size, but variables do not depend on it.
        key = (mode, id(replicas), _signature(example))
        if self._cache is not None and key in self._cache:
            return self._cache[key]
        _log.info("Calling model_fn.")
        compiled = CompiledModelFn(self.call_model_fn, mode, replicas, self.config.tf_random_seed, example)
        _log.info("Done calling model_fn.")
        # Hooks of a spec are stateful objects of its call: a cached one would run them in the next evaluation again.
        if self._cache is not None and not compiled.hooks:
            self._cache[key] = compiled
        return compiled

    @contextlib.contextmanager
    def cache_programs(self) -> Generator[None]:
        """Reuses compiled programs between evaluations, within the context."""
        before, self._cache = self._cache, {} if self._cache is None else self._cache
        try:
            yield
        finally:
            self._cache = before

    def _warm_start_fn(self, variables: Variables) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
        """Returns the function that replaces first values, or `None` without a warm start."""
        settings = self.warm_start
        if settings is None:
            return None
        return lambda values: warm_start_values(values, set(variables.trainable_keys()), settings)

    def call_model_fn(self, features: PyTree, labels: PyTree, mode: str) -> EstimatorSpec:
        """Calls the model_fn.

        Raises:
            ArgumentError: If it returns anything but an EstimatorSpec of this mode.
        """
        spec = call_model_fn(self.model_fn, features, labels, mode, self.params, copy.copy(self.config))
        if not isinstance(spec, EstimatorSpec):
            raise ArgumentError(f"model_fn should return an EstimatorSpec. Received: {spec!r} in mode {mode!r}.")
        if spec.mode != mode:
            raise ArgumentError(
                f"An EstimatorSpec must be of the mode that model_fn is called for, {mode!r}. Received: {spec.mode!r}."
            )
        return spec

    def values(self, compiled: CompiledModelFn, path: str | None) -> dict[str, Any]:
        """Returns the values of a checkpoint's variables, or new ones."""
        if path is None:
            return _restoring.initialize(compiled.variables, self._warm_start_fn(compiled.variables))
        return _restoring.restore(compiled.variables, path)

    def is_trained(self, runtime: Runtime, max_steps: int | None) -> bool:
        """Returns whether the chief's latest checkpoint has reached `max_steps`; a collective call."""
        if max_steps is None:
            return False
        # Only the chief's answer counts: other workers may see an older listing of a shared directory.
        mine = _restoring.global_step_of(self.latest_checkpoint()) if runtime.is_chief else 0
        return runtime.all_gather_object("the global step", mine)[0] >= max_steps


def _signature(example: PyTree) -> str:
    leaves, treedef = jax.tree.flatten(example)
    return f"{treedef} {[(np.asarray(leaf).dtype, np.shape(leaf)[1:]) for leaf in leaves]}"
