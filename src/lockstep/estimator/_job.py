"""A model_fn, learnt from the data, ready to run in one mode on some replicas."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax

from lockstep._model_fn.function import Data, ModelCall, ModelFunction
from lockstep._model_fn.outputs import Selection, static_summaries, texts_in, traced_values_in
from lockstep._model_fn.program import ModelProgram, text_leaves, to_abstract
from lockstep._model_fn.records import GroupOp, SummaryOp, group
from lockstep._model_fn.steps import Steps, evaluate_step, increment, predict_step, train_step
from lockstep._model_fn.variables import Variables
from lockstep._step.replicas import Replicas

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


class Job:
    """Calls the model_fn once, without computing anything, to learn its variables and what it says.

    Args:
        call: The model_fn as a function of features, labels and mode.
        mode: "train", "eval" or "infer".
        replicas: Where it runs.
        seed: Of the random numbers behind first values, or `None`.
        example: A batch.
    """

    def __init__(self, call: ModelCall, mode: str, replicas: Replicas, seed: int | None, example: Data) -> None:
        self.mode = mode
        self.replicas = replicas
        self.variables = Variables(seed)
        self._function = ModelFunction(call, mode, self.variables, replicas.count, text_leaves(example))
        self._wanted: frozenset[str] = frozenset()
        learning = self._steps()
        jax.eval_shape(lambda data: learning.batch_step({}, data), to_abstract(example))

    @property
    def first(self) -> ModelCall:
        """The call from which all is known; the values in it are dead."""
        assert self._function.first is not None
        return self._function.first

    @property
    def spec(self) -> Any:
        """What the model_fn returned."""
        return self.first.spec

    @property
    def hooks(self) -> list[Any]:
        """The hooks in the spec, in the order of the outputs."""
        return self._hooks_of(self.spec)

    @property
    def summaries(self) -> list[SummaryOp]:
        """The summaries, without their values."""
        return static_summaries(self.first.scope.recorded.summaries)

    @property
    def names(self) -> list[str]:
        """The names of the values that hooks may ask for."""
        return list(self.first.scope.recorded.values)

    @cached_property
    def increment(self) -> int:
        """By how much a step increments the global step."""
        ops: GroupOp = group(self.spec.train_op)
        return increment(ops)

    @cached_property
    def places(self) -> dict[int, tuple[Any, ...]]:
        """Where in the outputs a traced value of the first call is found, by its id."""
        found: dict[int, tuple[Any, ...]] = {id(self.spec.loss): ("loss",)}
        found.update({id(v): ("values", name) for name, v in self.first.scope.recorded.values.items()})
        for number, hook in enumerate(self.hooks):
            found.update({id(v): ("hooks", number, path) for path, v in traced_values_in(hook).items()})
        return found

    def want(self, hooks: list[Any], seconds: float | None = None) -> None:
        """Has the program hand out the values that hooks name, also those of other tasks; all tasks call it.

        The chief has hooks of its own, and all must run the same program.

        Args:
            hooks: Of this task.
            seconds: How long to wait for the others, instead of the limit for all calls.
        """
        texts = {text for hook in hooks for text in texts_in(hook)}
        mine = sorted(texts & set(self.names))
        found = self.replicas.runtime.agree(f"the values that hooks of {self.mode} ask for", mine, seconds)
        self._wanted = frozenset(name for names in found for name in names)
        self.__dict__.pop("program", None)

    @cached_property
    def program(self) -> ModelProgram:
        """The compiled step."""
        slots = self._optimizers_places if self.mode == "train" else None
        return ModelProgram(self.mode, self._steps(), self.replicas, self.first.scope.recorded.needs, slots)

    def _optimizers_places(self) -> frozenset[int]:
        """Which leaves of the state are variables that optimizers keep for themselves."""
        updated = self._function.updated
        return frozenset(i for i, key in enumerate(sorted(self.variables.entries)) if key in updated)

    def signature(self) -> dict[str, str]:
        """Type and shape of each variable."""
        return {key: str(entry) for key, entry in self.variables.entries.items()}

    def digest(self) -> str:
        """A short text that is equal if and only if the signatures are."""
        return hashlib.sha256(repr(self.signature()).encode()).hexdigest()

    def _steps(self) -> Steps:
        return _STEPS[self.mode](self._function, self.replicas, Selection(self._wanted, self._hooks_of))

    def _hooks_of(self, spec: Any) -> list[Any]:
        return [hook for name in _HOOKS[self.mode] for hook in getattr(spec, name, None) or ()]
