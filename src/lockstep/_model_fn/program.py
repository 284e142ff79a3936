"""The step program of a model_fn."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import numpy as np

from lockstep._model_fn.function import Data
from lockstep._model_fn.records import HostNeed
from lockstep._model_fn.steps import Steps
from lockstep._model_fn.text import is_text
from lockstep._step.portions import Part, Share
from lockstep._step.program import CompiledProgram
from lockstep._step.replicas import Replicas
from lockstep._step.same_program import Subject
from lockstep.errors import ArgumentError

_ADVICE = (
    "Have the model_fn return the same on every worker: the same layers, loss, optimizer and hooks, with the same "
    "params. Look for what depends on the task; hooks for the chief alone belong in training_chief_hooks."
)


class ModelProgram(CompiledProgram):
    """A compiled step that takes batches with text.

    Args:
        mode: "train", "eval" or "infer".
        steps: What it computes.
        replicas: Where it runs.
        needs: Integers that the model_fn wants of text.
        slots: Returns which leaves of the state are optimizers', by number.
    """

    def __init__(
        self,
        mode: str,
        steps: Steps,
        replicas: Replicas,
        needs: Sequence[HostNeed],
        slots: Callable[[], Collection[int]] | None = None,
    ) -> None:
        halves = steps.in_halves()
        # Hooks may look at the loss of each step, and predictions are handed out batch by batch. Several tasks must
        # dispatch alike, and the chief has hooks of its own.
        super().__init__(
            steps.whole,
            replicas,
            steps.of_replica() if halves is None else halves[0],
            kept="all" if mode == "train" else "last",
            repeats=mode != "infer" and replicas.runtime.is_alone,
            local=steps.local(),
            slots=slots,
            update=None if halves is None else halves[1],
            subject=Subject(f"the step of model_fn in mode {mode!r}", advice=_ADVICE),
        )
        self._needs = list(needs)

    def prepare(self, batch: Any) -> Any:
        """Makes of a batch of `Data`, or this task's part of it, one with integers for its text."""
        if isinstance(batch, (Part, Share)):
            return super().prepare(dataclasses.replace(batch, data=without_text(batch.data, self._needs)))
        return super().prepare(without_text(batch, self._needs) if isinstance(batch, Data) else batch)


def text_leaves(data: Data) -> frozenset[str]:
    """Returns the paths of the leaves of (features, labels) that are text."""
    leaves = _with_paths((data.features, data.labels))
    return frozenset(path for path, leaf in leaves if is_text(leaf))


def without_text(data: Data, needs: Sequence[HostNeed]) -> Data:
    """Returns data with the integers that stand for its text, and without it."""
    leaves = dict(_with_paths((data.features, data.labels)))
    if not any(map(is_text, leaves.values())):
        return data
    features, labels = jax.tree.map(_shape_only, (data.features, data.labels))
    return Data(features, labels, tuple(_computed(need, leaves[need.leaf]) for need in needs))


def _with_paths(tree: Any) -> list[tuple[str, Any]]:
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]]


def _shape_only(leaf: Any) -> Any:
    return np.zeros(leaf.shape, np.bool_) if is_text(leaf) else leaf


def _computed(need: HostNeed, text: Any) -> np.ndarray:
    found = np.asarray(need.function(text)).astype(need.dtype, copy=False)
    if found.shape != text.shape:
        raise ArgumentError(
            f"A function for Text.ids must return as many integers as there are texts. Received: {found.shape} for "
            f"{text.shape} at {need.leaf}."
        )
    return found


def abstract(data: Data) -> Data:
    """Returns shapes and types in place of the arrays, as they will be on the devices."""

    def shaped(leaf: Any) -> jax.ShapeDtypeStruct:
        array = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
        return jax.ShapeDtypeStruct(array.shape, jax.dtypes.canonicalize_dtype(array.dtype))

    return jax.tree.map(shaped, without_text(data, ()))
