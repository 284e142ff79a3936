"""The core of an Estimator: its model_fn, traced and compiled for a mode, and the first values of its variables."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import logging
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np

from lockstep import checkpoint
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.replicas import Replicas
from lockstep._types import PyTree
from lockstep.distribute.internal import default_devices
from lockstep.errors import ArgumentError, CheckpointError
from lockstep.estimator._arguments import call_model_fn
from lockstep.estimator._estimator_spec import EstimatorSpec
from lockstep.estimator._input_fns.source import Input
from lockstep.estimator._model_fn.function import (
    Data,
    ModelCall,
    ModelFunction,
    Selection,
    collected_values,
    static_summaries,
    texts_in,
    traced_values_in,
)
from lockstep.estimator._model_fn.program import ModelProgram, text_leaves, to_abstract
from lockstep.estimator._model_fn.records import GroupOp, SummaryOp, batches_of_update, group
from lockstep.estimator._model_fn.step_parts import StepParts
from lockstep.estimator._model_fn.steps import (
    Steps,
    evaluate_step,
    increment,
    predict_step,
    reduction_of,
    train_step,
)
from lockstep.estimator._model_fn.variables import GLOBAL_STEP, FirstValues, IsTable, Variables
from lockstep.estimator._run_config import RunConfig
from lockstep.estimator._tensorflow_checkpoint import translate
from lockstep.estimator._types import Strategy
from lockstep.estimator._warm_start import WarmStartSettings, warm_start_values
from lockstep.estimator._weights import TabledValues, hold_checkpoint, load_weights

_log = logging.getLogger("lockstep")

ModelFn = Callable[[PyTree, PyTree, str], EstimatorSpec]
Values = dict[str, np.ndarray]

_STEPS: dict[str, Callable[[ModelFunction, Replicas, Selection], Steps]] = {
    "train": train_step,
    "eval": evaluate_step,
    "infer": predict_step,
}
_HOOKS = {
    # The order is that of the outputs; all workers must have the same, so the chief's hooks are traced everywhere.
    "train": ("training_hooks", "training_chief_hooks"),
    "eval": ("evaluation_hooks",),
    "infer": ("prediction_hooks",),
}


class EstimatorCore:
    """The model_fn, settings and compiled programs behind an Estimator's methods.

    Attributes:
        model_fn: The model function, as the user gave it.
        config: The RunConfig, with a model_dir.
        warm_start: The warm start settings, or `None`.
        is_table: Returns whether parameter servers hold a variable by rows, by its shape and dtype; `None` without any.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any],
        config: RunConfig,
        params: Any,
        warm_start: WarmStartSettings | None,
    ) -> None:
        self.model_fn = model_fn
        self.config = config
        self.warm_start = warm_start
        self.is_table: IsTable | None = None
        self._params = copy.deepcopy(params)
        self._cache: dict[Any, CompiledModelFn] | None = None
        self._first_device: Replicas | None = None

    @property
    def model_dir(self) -> str:
        """Returns the directory of checkpoints."""
        assert self.config.model_dir is not None
        return self.config.model_dir

    @property
    def params(self) -> Any:
        """Returns a copy of the parameters: what one call changes in them must not reach the next, as in TensorFlow."""
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
        # The same object for all calls: cached programs are known by the replicas they were compiled for.
        if self._first_device is None:
            self._first_device = Replicas(Runtime(), default_devices()[:1])
        return self._first_device

    def compile(self, mode: str, replicas: Replicas, input: Input) -> CompiledModelFn:
        """Traces and compiles the model_fn for a mode and the batches of an input."""
        # The first batch stays in the source: the run begins with it.
        example = input.source.peek()
        # By shapes without the batch size: programs are compiled per batch size, but variables do not depend on it.
        leaves, treedef = jax.tree.flatten(example)
        shapes = tuple((np.asarray(leaf).dtype, np.shape(leaf)[1:]) for leaf in leaves)
        key = (mode, id(replicas), str(treedef), shapes)
        if self._cache is not None and key in self._cache:
            return self._cache[key]
        _log.info("Calling model_fn.")
        variables = Variables(self.config.tf_random_seed, self.is_table)
        compiled = CompiledModelFn(self.call_model_fn, mode, replicas, variables, example)
        _log.info("Done calling model_fn.")
        # Hooks of a spec are stateful objects of its call: a cached one would run them in the next evaluation again.
        if self._cache is not None and not compiled.hooks:
            self._cache[key] = compiled
        return compiled

    @contextlib.contextmanager
    def cache_programs(self) -> Generator[None]:
        """Reuses compiled programs between evaluations, within the context."""
        # Only within it: kept for ever, the programs for the shapes of all inputs would add up.
        before, self._cache = self._cache, {} if self._cache is None else self._cache
        try:
            yield
        finally:
            self._cache = before

    def call_model_fn(self, features: PyTree, labels: PyTree, mode: str) -> EstimatorSpec:
        """Calls the model_fn; raises `ArgumentError` if it returns anything but an EstimatorSpec of this mode."""
        # Copies, as in TensorFlow: a model_fn may change its params, and is called again for each mode.
        spec = call_model_fn(self.model_fn, features, labels, mode, self.params, copy.copy(self.config))
        if not isinstance(spec, EstimatorSpec):
            raise ArgumentError(f"model_fn should return an EstimatorSpec. Received: {spec!r} in mode {mode!r}.")
        if spec.mode != mode:
            raise ArgumentError(
                f"An EstimatorSpec must be of the mode that model_fn is called for, {mode!r}. Received: {spec.mode!r}."
            )
        return spec

    def first_values(self, compiled: CompiledModelFn, path: str | None) -> Values:
        """Returns the values in a checkpoint; without one new values, after the warm start if there is one."""
        return dict(self.first_values_of(compiled.variables) if path is None else restore(compiled.variables, path))

    def first_values_by_rows(self, compiled: CompiledModelFn, path: str | None) -> Mapping[str, np.ndarray]:
        """Returns first values likewise, of which a checkpoint's tables are read when they are asked for."""
        variables = compiled.variables
        return self.first_values_of(variables) if path is None else restore(variables, path, by_rows=True)

    @property
    def has_first_weights(self) -> bool:
        """Returns whether the model begins with weights of another training, or of a model of Keras."""
        return self.warm_start is not None or getattr(self.model_fn, "has_weights", False)

    def first_values_of(self, variables: Variables) -> Values:
        """Returns new values of variables, after the warm start if there is one."""
        # TensorFlow warm-starts only where no checkpoint is restored: a restart must not go back to the other model's.
        values = variables.initial_values()
        if self.warm_start is None:
            return values
        return warm_start_values(values, set(variables.trainable_keys()), self.warm_start)

    def first_values_on_demand(self, variables: Variables) -> Mapping[str, np.ndarray]:
        """Returns new values of variables, of which large ones are computed each time that they are asked for."""
        return FirstValues(variables.entries) if self.warm_start is None else self.first_values_of(variables)

    def is_trained(self, runtime: Runtime, max_steps: int | None) -> bool:
        """Returns whether the chief's latest checkpoint has reached `max_steps`; a collective call."""
        if max_steps is None:
            return False
        # Only the chief's answer counts: other workers may see an older listing of a shared directory.
        mine = global_step_of(self.latest_checkpoint()) if runtime.is_chief else 0
        return runtime.all_gather_object("the global step", mine)[0] >= max_steps


class CompiledModelFn:
    """A model_fn traced once on an example batch, without computing anything, and its compiled step."""

    def __init__(self, call: ModelFn, mode: str, replicas: Replicas, variables: Variables, example: Data) -> None:
        self.mode = mode
        self.replicas = replicas
        self.variables = variables
        self._function = ModelFunction(call, mode, self.variables, replicas.count, text_leaves(example))
        # Names of arrays that hooks fetch, besides scalars, which are outputs anyway.
        self._wanted: frozenset[str] = frozenset()
        steps = self._steps()
        # Abstract evaluation: learns variables, hooks and metrics without compiling or allocating anything.
        jax.eval_shape(lambda data: steps.batch_step({}, data), to_abstract(example))

    @property
    def first_call(self) -> ModelCall:
        """Returns the first call, whose records describe the model_fn; its values are dead tracers."""
        assert self._function.first is not None
        return self._function.first

    @property
    def spec(self) -> Any:
        """Returns the first call's EstimatorSpec."""
        return self.first_call.spec

    @property
    def hooks(self) -> list[Any]:
        """Returns the hooks of the spec, in the order of the outputs."""
        return self._hooks_of(self.spec)

    @property
    def summaries(self) -> list[SummaryOp]:
        """Returns the summaries, without their values."""
        return static_summaries(self.first_call.scope.recorded.summaries)

    @property
    def checks(self) -> list[str]:
        """Returns the messages of the conditions that hold in each step."""
        return [check.message for check in self.first_call.scope.recorded.checks]

    @property
    def names(self) -> list[str]:
        """Returns the names of values that hooks may fetch."""
        return list(self.first_call.scope.recorded.values)

    @cached_property
    def increment(self) -> int:
        """Returns the global step's increment per step."""
        ops: GroupOp = group(self.spec.train_op)
        return increment(ops)

    @property
    def batches_of_update(self) -> int | None:
        """Returns over how many batches an update averages (SyncReplicasOptimizer); `None` if each batch is one."""
        return batches_of_update(group(self.spec.train_op))

    @cached_property
    def output_paths(self) -> dict[int, tuple[Any, ...]]:
        """Returns the path in the outputs of each traced value of the first call, by its id."""
        # A hook of a model_fn holds tensors of that call, as in TensorFlow; the first call stays alive, so do the ids.
        scope = self.first_call.scope
        paths: dict[int, tuple[Any, ...]] = {id(v): ("collected", name) for name, v in collected_values(scope).items()}
        paths[id(self.spec.loss)] = ("loss",)
        paths.update({id(v): ("values", name) for name, v in scope.recorded.values.items()})
        for number, hook in enumerate(self.hooks):
            paths.update({id(v): ("hooks", number, path) for path, v in traced_values_in(hook).items()})
        # Counted on the host: reading the variable would wait for the step in progress.
        paths.update({key: (GLOBAL_STEP,) for key in scope.shown_steps})
        return paths

    def begin(self, hooks: Sequence[Any]) -> None:
        """Calls `begin` of hooks in the scope of the first call, where they find the model_fn's variables and values.

        Raises:
            ArgumentError: If a hook computes with values of the model_fn, whose trace has ended.
        """
        with self._function.reopened(self.first_call):
            for hook in hooks:
                try:
                    hook.begin()
                except jax.errors.UnexpectedTracerError as error:
                    raise ArgumentError(
                        "A hook may find values of the model_fn in begin, and not compute with them: the model_fn has "
                        f"returned. Received: {type(hook).__name__}.begin. Compute the value in the model_fn, and "
                        "put it into a collection, or give it a name: tf.identity(value, name=name)."
                    ) from error

    def request_outputs(self, hooks: list[Any], seconds: float | None = None) -> None:
        """Adds the values that any worker's hooks name to the program's outputs; a collective call of that timeout."""
        texts = {text for hook in hooks for text in texts_in(hook)}
        held = {id(value) for hook in hooks for value in traced_values_in(hook).values()}
        collected = {n for n, v in collected_values(self.first_call.scope).items() if id(v) in held}
        mine = sorted((texts & set(self.names)) | collected)
        # The chief has hooks of its own, but all workers must run the same program.
        by_worker = self.replicas.runtime.all_gather_object(
            f"the values that hooks of {self.mode} ask for", mine, seconds
        )
        self.want(name for names in by_worker for name in names)

    @property
    def requested(self) -> frozenset[str]:
        """Returns the names of arrays that hooks ask for."""
        return self._wanted

    def want(self, names: Iterable[str]) -> None:
        """Makes these values outputs of the program, besides scalars."""
        self._wanted = frozenset(names)
        # The cached program has other outputs.
        self.__dict__.pop("program", None)

    @property
    def asks_for_gradients(self) -> bool:
        """Returns whether the model_fn makes something of gradients before they are applied, such as clips them."""
        return bool(self.first_call.scope.recorded.sites)

    @property
    def loss_reduction(self) -> str | None:
        """Returns the reduction of the loss over replicas; `None` for a mean."""
        return reduction_of(self.first_call)

    def training_parts(self, weights: Sequence[float] = (1.0,)) -> StepParts:
        """Returns the training step in two parts, gradients and update, of as many batches as there are weights."""
        return self._steps().parts(weights)

    def batch_step(self, state: Mapping[str, Any], data: Data) -> tuple[Any, Any]:
        """Computes a step of a batch that is not divided, to be traced: (outputs, state)."""
        return self._steps().batch_step(state, data)

    @cached_property
    def program(self) -> ModelProgram:
        """Returns the compiled step."""

        def slot_indices() -> frozenset[int]:
            # Known only once the step is traced. Leaves of a dict are numbered in the order of its sorted keys.
            updated = self._function.updated
            return frozenset(i for i, key in enumerate(sorted(self.variables.entries)) if key in updated)

        slots = slot_indices if self.mode == "train" else None
        return ModelProgram(self.mode, self._steps(), self.replicas, self.first_call.scope.recorded.needs, slots)

    def digest(self) -> str:
        """Returns a hash of the dtype and shape of each variable."""
        signature = {key: str(entry) for key, entry in self.variables.entries.items()}
        return hashlib.sha256(repr(signature).encode()).hexdigest()

    def _steps(self) -> Steps:
        return _STEPS[self.mode](self._function, self.replicas, Selection(self._wanted, self._hooks_of))

    def _hooks_of(self, spec: object) -> list[Any]:
        return [hook for name in _HOOKS[self.mode] for hook in getattr(spec, name, None) or ()]


def restore(variables: Variables, path: str, by_rows: bool = False) -> Mapping[str, np.ndarray]:
    """Returns the variables in a checkpoint; local ones get new values, and tables may stay in their files."""
    # Pinned: a training that goes on meanwhile keeps only the newest few, and must not delete this one.
    with hold_checkpoint(path):
        return restore_loaded(variables, load_weights(path, by_rows))


def restore_loaded(variables: Variables, loaded: checkpoint.Checkpoint) -> Mapping[str, np.ndarray]:
    """Returns the variables in a loaded checkpoint; local ones get new values.

    Raises:
        CheckpointError: If it lacks a variable, or holds another shape.
    """
    given = loaded
    if loaded.full_names is not None:
        loaded = translate(variables, loaded)
    path, arrays = loaded.prefix, loaded.arrays
    tables = {} if loaded.tables is None else loaded.tables.layouts
    kept: dict[str, str] = {}
    _log.info("Restoring parameters from %s", path)
    # Metrics and loss averages start anew in each run, so no checkpoint holds them.
    local = {key for key, entry in variables.entries.items() if entry.local}
    # One by one: of a large table nobody needs the first values.
    fresh = FirstValues(variables.entries)
    values: Values = {}
    for key, entry in variables.entries.items():
        if key in local:
            values[key] = fresh[key]
            continue
        if key not in arrays and key not in tables:
            raise CheckpointError(
                f"A checkpoint must hold every variable of the model_fn. {path} lacks {key} ({entry}); it holds "
                f"{', '.join(sorted({*given.arrays, *tables})[:8])}... Train this model in another model_dir, with "
                "WarmStartSettings(ckpt_to_initialize_from=...) to take over what fits."
            )
        shape = tables[key].shape if key in tables else arrays[key].shape
        if shape != entry.shape:
            raise CheckpointError(
                f"A checkpoint must hold variables of the model_fn's shapes. {path} has {key} with "
                f"{shape}; the model_fn makes it {entry.shape}. Use another model_dir."
            )
        if key in tables:
            kept[key] = entry.dtype
        else:
            values[key] = np.asarray(arrays[key]).astype(entry.dtype, copy=False)
    return values if loaded.tables is None else TabledValues(values, loaded.tables, kept)


def global_step_of(path: str | None) -> int:
    """Returns the global step of a checkpoint, 0 without one."""
    return 0 if path is None else int(checkpoint.load_variable(path, GLOBAL_STEP))


@contextlib.contextmanager
def log_only_on(is_chief: bool) -> Generator[None]:
    """Raises the log level to WARNING except on the chief, within the context."""
    before = _log.level
    if not is_chief:
        _log.setLevel(max(before, logging.WARNING))
    try:
        yield
    finally:
        _log.setLevel(before)
