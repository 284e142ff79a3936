"""The compiled step program of a model_fn, with text computed on the host."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import numpy as np

from lockstep._engine.step.batches import EvenShard, RaggedShard
from lockstep._engine.step.program import StepProgram, adapter_for
from lockstep._engine.step.program_digest import Subject
from lockstep._engine.step.replicas import Replicas
from lockstep._text import is_text
from lockstep._types import Array, Batch, PyTree
from lockstep.errors import ArgumentError
from lockstep.estimator._model_fn.function import Batches, Data
from lockstep.estimator._model_fn.records import HostNeed
from lockstep.estimator._model_fn.steps import Steps

_ADVICE = (
    "Have the model_fn return the same on every worker: the same layers, loss, optimizer and hooks, with the same "
    "params. Look for what depends on the task; hooks for the chief alone belong in training_chief_hooks."
)


class ModelProgram(StepProgram):
    """A compiled step of a model_fn, for batches that may hold text.

    `slots` returns the indices of the state's leaves that are optimizer slots, which ZeRO-1 shards.
    """

    def __init__(
        self,
        mode: str,
        steps: Steps,
        replicas: Replicas,
        needs: Sequence[HostNeed],
        slots: Callable[[], Collection[int]] | None = None,
    ) -> None:
        replica_step, update = steps.split_step() or (steps.replica_step(), None)
        adapter = adapter_for(replicas, replica_step, steps.local_step(), slots, update)
        # Outputs of all training steps: hooks may read the loss of each. No repeats in prediction, which yields batch
        # by batch, nor with several processes: all must dispatch alike, but hooks, which limit repeats, run on the
        # chief.
        super().__init__(
            steps.batch_step,
            replicas,
            adapter,
            output_mode="all" if mode == "train" else "last",
            repeats=mode != "infer" and replicas.runtime.is_alone,
            subject=Subject(f"the step of model_fn in mode {mode!r}", advice=_ADVICE),
        )
        self._needs = list(needs)

    def prepare(self, batch: Batch) -> Any:
        """Replaces text in a batch, or in this process's shard of it, by integers."""
        if isinstance(batch, (RaggedShard, EvenShard)):
            return super().prepare(dataclasses.replace(batch, data=without_text(batch.data, self._needs)))
        return super().prepare(textless(batch, self._needs) if isinstance(batch, (Data, Batches)) else batch)


def text_leaves(data: Data) -> frozenset[str]:
    """Returns the paths of the leaves of (features, labels) that are text."""
    leaves = _with_paths((data.features, data.labels))
    return frozenset(path for path, leaf in leaves if is_text(leaf))


def textless(batch: Data | Batches, needs: Sequence[HostNeed]) -> Data | Batches:
    """Returns a batch, or each of several, with integers in place of text; see `without_text`."""
    if isinstance(batch, Batches):
        return Batches(tuple(without_text(part, needs) for part in batch.parts))
    return without_text(batch, needs)


def without_text(data: Data, needs: Sequence[HostNeed]) -> Data:
    """Returns data in which the integers computed from its text stand beside arrays of the text's shape."""
    # XLA has no strings. The arrays of the text's shape keep the structure, so that rows are sharded alike.
    leaves = dict(_with_paths((data.features, data.labels)))
    if not any(map(is_text, leaves.values())):
        return data
    features, labels = jax.tree.map(
        lambda leaf: np.zeros(leaf.shape, np.bool_) if is_text(leaf) else leaf, (data.features, data.labels)
    )
    texts: list[np.ndarray] = []
    for need in needs:
        text = leaves[need.leaf]
        ids = np.asarray(need.function(text)).astype(need.dtype, copy=False)
        if ids.shape != text.shape:
            raise ArgumentError(
                f"A function for Text.ids must return as many integers as there are texts. Received: {ids.shape} for "
                f"{text.shape} at {need.leaf}."
            )
        texts.append(ids)
    return Data(features, labels, tuple(texts))


def _with_paths(tree: PyTree) -> list[tuple[str, Any]]:
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]]


def to_abstract(data: Data) -> Data:
    """Returns the shapes and dtypes that the arrays will have on devices."""

    def to_struct(leaf: Array) -> jax.ShapeDtypeStruct:
        # Numbers of Python, which input_fns may yield among arrays.
        array = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
        return jax.ShapeDtypeStruct(array.shape, jax.dtypes.canonicalize_dtype(array.dtype))

    return jax.tree.map(to_struct, without_text(data, ()))
