"""Several heads on one model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import keras

from lockstep._types import Optimizer, PyTree
from lockstep.errors import ArgumentError
from lockstep.estimator._estimator_spec import EstimatorSpec
from lockstep.estimator._heads import _keys
from lockstep.estimator._heads._head import Head, add_scalar, select_keys, total
from lockstep.estimator._heads._metrics import metric_name, update
from lockstep.estimator._mode_keys import ModeKeys
from lockstep.estimator._model_fn.records import group


class MultiHead(Head):
    """A head of several heads: sums their losses, and keys predictions by (head name, key).

    Logits are a dict by head name, or one array of all heads' logits along the last dimension. Labels are a dict.

    Args:
        heads: Heads with names; a saved model serves the first by default.
        head_weights: The weight of each loss; `None` for 1.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.estimator.MultiHead.
    """

    def __init__(self, heads: Sequence[Head], head_weights: Sequence[float] | None = None) -> None:
        self._heads = tuple(heads or ())
        names = [head.name for head in self._heads]
        if not names or None in names or len(set(names)) < len(names):
            raise ArgumentError(f"heads must hold heads, each with its own name. Received heads named: {names}.")
        if head_weights and len(head_weights) != len(self._heads):
            raise ArgumentError(
                f"head_weights must hold a weight for each of the {len(self._heads)} heads. Received: {head_weights!r}."
            )
        self._head_weights = tuple(head_weights or ())

    @property
    def name(self) -> str:
        return "_".join(str(head.name) for head in self._heads)

    @property
    def logits_dimension(self) -> int:
        return sum(head.logits_dimension for head in self._heads)

    @property
    def loss_reduction(self) -> str:
        reductions = {head.loss_reduction for head in self._heads}
        # One for all: the step program either sums the losses of replicas or averages them.
        if len(reductions) > 1:
            raise ArgumentError(
                f"The heads of a MultiHead must have one loss_reduction. Received: {sorted(reductions)}."
            )
        return reductions.pop()

    def loss(
        self,
        labels: PyTree,
        logits: PyTree,
        features: PyTree | None = None,
        mode: str | None = None,
        regularization_losses: Sequence[Any] | None = None,
    ) -> Any:
        losses = self._losses(self._split(logits), labels, features, mode)
        weights = self._head_weights or (1.0,) * len(losses)
        merged = total([loss * weight for loss, weight in zip(losses, weights, strict=True)])
        return merged if regularization_losses is None else merged + total(regularization_losses)

    def predictions(self, logits: PyTree, keys: Sequence[str] | None = None) -> dict[Any, Any]:
        split = self._split(logits)
        every = {
            (head.name, key): value for head in self._heads for key, value in head.predictions(split[head.name]).items()
        }
        return {key: every[key] for key in select_keys(keys, list(every))}

    def metrics(self, regularization_losses: Sequence[Any] | None = None) -> dict[str, Any]:
        names = [_loss_key(head) for head in self._heads]
        if regularization_losses is not None:
            names.append(self._regularization_key)
        return {name: keras.metrics.Mean(name=metric_name(name)) for name in names}

    def update_metrics(
        self,
        eval_metrics: dict[str, Any],
        features: PyTree,
        logits: PyTree,
        labels: PyTree,
        mode: str | None = None,
        regularization_losses: Sequence[Any] | None = None,
    ) -> dict[str, Any]:
        split = self._split(logits)
        if regularization_losses is not None:
            update(eval_metrics[self._regularization_key], total(regularization_losses))
        for head, loss in zip(self._heads, self._losses(split, labels, features, mode), strict=True):
            update(eval_metrics[_loss_key(head)], loss)
            # The heads' own metrics are made here, not in `metrics`: their names are the heads' to choose.
            eval_metrics |= head.update_metrics(head.metrics(), features, split[head.name], labels[head.name])
        return eval_metrics

    def create_estimator_spec(
        self,
        features: PyTree,
        mode: str,
        logits: PyTree,
        labels: PyTree | None = None,
        optimizer: Optimizer | None = None,
        trainable_variables: Sequence[Any] | None = None,
        train_op_fn: Callable[[Any], Any] | None = None,
        update_ops: Sequence[Any] | None = None,
        regularization_losses: Sequence[Any] | None = None,
    ) -> EstimatorSpec:
        """Creates the result of a model_fn; see `Head.create_estimator_spec`."""
        split = self._split(logits)
        if mode == ModeKeys.PREDICT:
            outputs = self._export_outputs(features, split)
            return EstimatorSpec(mode, predictions=self.predictions(logits), export_outputs=outputs)
        if mode == ModeKeys.TRAIN:
            # Computed a second time in the base class; XLA merges both.
            for head, loss in zip(self._heads, self._losses(split, labels, features, mode), strict=True):
                add_scalar(_loss_key(head), loss)
        return super().create_estimator_spec(
            features,
            mode,
            logits,
            labels,
            optimizer=optimizer,
            trainable_variables=trainable_variables,
            train_op_fn=train_op_fn,
            update_ops=update_ops,
            regularization_losses=regularization_losses,
        )

    def key(self, name: str) -> str:
        """Returns the name of a summary of all heads."""
        return name

    @property
    def _regularization_key(self) -> str:
        return f"{_keys.LOSS_REGULARIZATION}/{self.name}"

    def _losses(self, logits: Mapping[Any, Any], labels: PyTree, features: PyTree, mode: str | None) -> list[Any]:
        by_head = self._check_names("labels", labels)
        return [head.loss(by_head[head.name], logits[head.name], features=features, mode=mode) for head in self._heads]

    def _export_outputs(self, features: PyTree, logits: Mapping[Any, Any]) -> dict[str, Any]:
        """Returns each head's outputs, prefixed by its name; the first head's are served by default."""
        from lockstep.estimator._export.outputs import PredictOutput

        merged: dict[str, Any] = {}
        outputs: dict[str, Any] = {}
        for head in self._heads:
            # The whole spec rather than `export_outputs`, as tf.estimator.MultiHead: a custom head may define
            # `create_estimator_spec` alone, and ask for a train_op_fn in every mode.
            spec = head.create_estimator_spec(
                features, ModeKeys.PREDICT, logits[head.name], train_op_fn=lambda _: group()
            )
            head_outputs = dict(spec.export_outputs or {})
            # The first head is the default; the others are served by name.
            outputs.setdefault(_keys.DEFAULT_SIGNATURE, head_outputs[_keys.DEFAULT_SIGNATURE])
            outputs[str(head.name)] = head_outputs.pop(_keys.DEFAULT_SIGNATURE)
            outputs |= {f"{head.name}/{name}": output for name, output in head_outputs.items()}
            merged |= {f"{head.name}/{key}": value for key, value in spec.predictions.items()}
        return outputs | {_keys.PREDICT_SIGNATURE: PredictOutput(merged)}

    def _split(self, logits: PyTree) -> dict[Any, Any]:
        """Splits the logits by head name."""
        if isinstance(logits, Mapping):
            return self._check_names("logits", logits)
        array = jnp.asarray(logits)
        sizes = [head.logits_dimension for head in self._heads]
        # One array of all logits, in the order of the heads, as tf.estimator.MultiHead splits it.
        if array.shape[-1] != sum(sizes):
            raise ArgumentError(
                f"logits of all heads side by side must have {sum(sizes)} columns, {' + '.join(map(str, sizes))}. "
                f"Received: shape {array.shape}."
            )
        ends = list(itertools.accumulate(sizes))
        return {
            head.name: array[..., end - size : end] for head, end, size in zip(self._heads, ends, sizes, strict=True)
        }

    def _check_names(self, argument: str, value: PyTree) -> dict[Any, Any]:
        is_dict = isinstance(value, Mapping)
        missing = [str(head.name) for head in self._heads if not is_dict or head.name not in value]
        if missing:
            shown = sorted(value) if is_dict else type(value).__name__
            raise ArgumentError(
                f"{argument} must be a dict by the names of the heads. Received: {shown}; missing: "
                f"{', '.join(missing)}."
            )
        return dict(value)


def _loss_key(head: Head) -> str:
    return f"{_keys.LOSS}/{head.name}"
