"""A model_fn traced on a batch, and compiled for one mode on some replicas."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax

from lockstep._engine.step.replicas import Replicas
from lockstep._types import PyTree
from lockstep.estimator._estimator_spec import EstimatorSpec
from lockstep.estimator._model_fn.function import Data, ModelCall, ModelFunction
from lockstep.estimator._model_fn.outputs import Selection, static_summaries, texts_in, traced_values_in
from lockstep.estimator._model_fn.program import ModelProgram, text_leaves, to_abstract
from lockstep.estimator._model_fn.records import GroupOp, SummaryOp, group
from lockstep.estimator._model_fn.steps import Steps, evaluate_step, increment, predict_step, train_step
from lockstep.estimator._model_fn.variables import Variables

ModelFn = Callable[[PyTree, PyTree, str], EstimatorSpec]

_STEPS: dict[str, Callable[[ModelFunction, Replicas, Selection], Steps]] = {
    "train": train_step,
    "eval": evaluate_step,
    "infer": predict_step,
}
_HOOKS = {
    "train": ("training_hooks", "training_chief_hooks"),
    "eval": ("evaluation_hooks",),
    "infer": ("prediction_hooks",),
}


class CompiledModelFn:
    """A model_fn traced once, without computing anything, and its compiled step.

    Args:
        call: The model_fn as a function of features, labels and mode.
        mode: "train", "eval" or "infer".
        replicas: The replicas it runs on.
        seed: The seed of first values, or `None`.
        example: A batch.
    """

    def __init__(self, call: ModelFn, mode: str, replicas: Replicas, seed: int | None, example: Data) -> None:
        self.mode = mode
        self.replicas = replicas
        self.variables = Variables(seed)
        self._function = ModelFunction(call, mode, self.variables, replicas.count, text_leaves(example))
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
    def names(self) -> list[str]:
        """Returns the names of values that hooks may fetch."""
        return list(self.first_call.scope.recorded.values)

    @cached_property
    def increment(self) -> int:
        """Returns the global step's increment per step."""
        ops: GroupOp = group(self.spec.train_op)
        return increment(ops)

    @cached_property
    def output_paths(self) -> dict[int, tuple[Any, ...]]:
        """Returns the path in the outputs of each traced value of the first call, by its id."""
        paths: dict[int, tuple[Any, ...]] = {id(self.spec.loss): ("loss",)}
        paths.update({id(v): ("values", name) for name, v in self.first_call.scope.recorded.values.items()})
        for number, hook in enumerate(self.hooks):
            paths.update({id(v): ("hooks", number, path) for path, v in traced_values_in(hook).items()})
        return paths

    def request_outputs(self, hooks: list[Any], seconds: float | None = None) -> None:
        """Adds the values that any worker's hooks name to the program's outputs; a collective call.

        The chief has hooks of its own, but all must run the same program.


        Args:
            hooks: This process' hooks.
            seconds: Timeout of the collective call, instead of the default.
        """
        texts = {text for hook in hooks for text in texts_in(hook)}
        mine = sorted(texts & set(self.names))
        by_worker = self.replicas.runtime.all_gather_object(
            f"the values that hooks of {self.mode} ask for", mine, seconds
        )
        self._wanted = frozenset(name for names in by_worker for name in names)
        # The cached program has other outputs.
        self.__dict__.pop("program", None)

    @cached_property
    def program(self) -> ModelProgram:
        """Returns the compiled step."""
        slots = self._slot_indices if self.mode == "train" else None
        return ModelProgram(self.mode, self._steps(), self.replicas, self.first_call.scope.recorded.needs, slots)

    def _slot_indices(self) -> frozenset[int]:
        """Returns the indices of the state's leaves that are optimizer slots."""
        updated = self._function.updated
        return frozenset(i for i, key in enumerate(sorted(self.variables.entries)) if key in updated)

    def signature(self) -> dict[str, str]:
        """Returns the dtype and shape of each variable."""
        return {key: str(entry) for key, entry in self.variables.entries.items()}

    def digest(self) -> str:
        """Returns a hash of the signature."""
        return hashlib.sha256(repr(self.signature()).encode()).hexdigest()

    def _steps(self) -> Steps:
        return _STEPS[self.mode](self._function, self.replicas, Selection(self._wanted, self._hooks_of))

    def _hooks_of(self, spec: object) -> list[Any]:
        return [hook for name in _HOOKS[self.mode] for hook in getattr(spec, name, None) or ()]
