"""What Estimator's methods work with: the model_fn, where its checkpoints are, and what is compiled."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Callable, Generator, Mapping
from typing import Any

import jax
import numpy as np

from lockstep import checkpoint
from lockstep._model_fn.variables import Variables
from lockstep._runtime.runtime import Runtime
from lockstep._step.replicas import Replicas
from lockstep.distribute._devices import default_devices
from lockstep.errors import ArgumentError
from lockstep.estimator import _restoring
from lockstep.estimator._estimator_spec import EstimatorSpec
from lockstep.estimator._input import Input
from lockstep.estimator._inspection import call_model_fn
from lockstep.estimator._job import Job
from lockstep.estimator._run_config import RunConfig
from lockstep.estimator._warm_start import WarmStartSettings, warm_started

_log = logging.getLogger("lockstep")


class Engine:
    """A model_fn with its settings.

    Args:
        model_fn: The function.
        config: With a model_dir.
        params: For the function; copied.
        warm_start: Where values come from while there is no checkpoint, or `None`.

    Attributes:
        config: The configuration.
        warm_start: As given.
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
        self._kept: dict[Any, Job] | None = None
        self._own: Replicas | None = None

    @property
    def model_dir(self) -> str:
        """Where checkpoints are."""
        assert self.config.model_dir is not None
        return self.config.model_dir

    @property
    def params(self) -> dict[str, Any]:
        """A copy of the parameters."""
        return copy.deepcopy(self._params)

    def latest_checkpoint(self) -> str | None:
        """Returns the path of the latest checkpoint, or `None`."""
        return checkpoint.latest_checkpoint(self.model_dir)

    def replicas_of(self, strategy: Any) -> tuple[Replicas, bool]:
        """Returns where a strategy runs, and whether it is one: `None` stands for this process' first device."""
        if strategy is None:
            return self.own_replicas(), False
        return strategy._demanded_replicas(), True

    def own_replicas(self) -> Replicas:
        """Returns this process' first device."""
        if self._own is None:
            self._own = Replicas(Runtime(), default_devices()[:1])
        return self._own

    def job(self, mode: str, replicas: Replicas, given: Input) -> Job:
        """Returns the model_fn, learnt for this mode and data."""
        example = given.source.peek()
        key = (mode, id(replicas), _signature(example))
        if self._kept is not None and key in self._kept:
            return self._kept[key]
        _log.info("Calling model_fn.")
        job = Job(self.call_model_fn, mode, replicas, self.config.tf_random_seed, example)
        _log.info("Done calling model_fn.")
        if self._kept is not None and not job.hooks:
            self._kept[key] = job
        return job

    @contextlib.contextmanager
    def keeping_programs(self) -> Generator[None]:
        """While open, what is compiled for one evaluation serves the next."""
        before, self._kept = self._kept, {} if self._kept is None else self._kept
        try:
            yield
        finally:
            self._kept = before

    def _warm_start_of(self, variables: Variables) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
        """Returns what replaces new values, if anything."""
        settings = self.warm_start
        if settings is None:
            return None
        return lambda values: warm_started(values, set(variables.trainable_keys()), settings)

    def call_model_fn(self, features: Any, labels: Any, mode: str) -> EstimatorSpec:
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

    def values(self, job: Job, path: str | None) -> dict[str, Any]:
        """Returns the values of a checkpoint's variables, or new ones."""
        if path is None:
            return _restoring.new(job.variables, self._warm_start_of(job.variables))
        return _restoring.restored(job.variables, path)

    def is_trained(self, runtime: Runtime, max_steps: int | None) -> bool:
        """Whether the chief's latest checkpoint has come to `max_steps`; all tasks ask."""
        if max_steps is None:
            return False
        mine = _restoring.global_step_of(self.latest_checkpoint()) if runtime.is_chief else 0
        return runtime.agree("the global step", mine)[0] >= max_steps


def _signature(example: Any) -> str:
    leaves, treedef = jax.tree.flatten(example)
    return f"{treedef} {[(np.asarray(leaf).dtype, np.shape(leaf)[1:]) for leaf in leaves]}"
