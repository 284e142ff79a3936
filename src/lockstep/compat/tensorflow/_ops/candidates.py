"""Losses over many classes by a few of them that are drawn, and what draws them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._ops.activations import (
    sigmoid_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits,
)
from lockstep.compat.tensorflow._ops.create import cast, stop_gradient
from lockstep.compat.tensorflow._ops.indexing import gather, read_values
from lockstep.compat.tensorflow._ops.random import uniform
from lockstep.compat.tensorflow._tensor import as_host
from lockstep.compat.tensorflow._types import Seed, SizeLike
from lockstep.errors import ArgumentError

__all__ = ["all_candidate_sampler", "compute_accidental_hits", "fixed_unigram_candidate_sampler"]
__all__ += ["log_uniform_candidate_sampler", "nce_loss", "sampled_softmax_loss", "uniform_candidate_sampler"]


class Candidates(NamedTuple):
    """Classes that were drawn, and how often the true and the drawn ones are expected among them."""

    sampled_candidates: Any
    true_expected_count: Any
    sampled_expected_count: Any


def uniform_candidate_sampler(
    true_classes: Tensor,
    num_true: SizeLike,
    num_sampled: SizeLike,
    unique: bool,
    range_max: SizeLike,
    seed: Seed = None,
    name: str | None = None,
) -> Candidates:
    """Draws classes, each with the same probability.

    Args:
        true_classes: `[batch, num_true]`: of these the expected counts are returned, too.
        num_true: The classes of an example.
        num_sampled: How many are drawn.
        unique: Whether none is drawn twice.
        range_max: The number of classes.
        seed: As of `tf.random.uniform`.
        name: Its name in a model_fn.

    Returns:
        int64 `[num_sampled]`, and float32 `[batch, num_true]` and `[num_sampled]`: how often each is expected.

    Raises:
        ArgumentError: If more are to be drawn than there are.

    Source: tf.random.uniform_candidate_sampler.
    """
    count = dispatch.to_static(range_max)
    return _draw(true_classes, dispatch.to_static(num_sampled), unique, np.full(count, 1 / count, np.float32), seed)


def log_uniform_candidate_sampler(
    true_classes: Tensor,
    num_true: SizeLike,
    num_sampled: SizeLike,
    unique: bool,
    range_max: SizeLike,
    seed: Seed = None,
    name: str | None = None,
) -> Candidates:
    """Draws classes that are sorted by how frequent they are, as Zipf's law has it; as `uniform_candidate_sampler`.

    Source: tf.random.log_uniform_candidate_sampler.
    """
    numbers = np.arange(dispatch.to_static(range_max) + 1, dtype=np.float64)
    chances = np.diff(np.log1p(numbers)) / np.log(len(numbers))
    return _draw(true_classes, dispatch.to_static(num_sampled), unique, chances.astype(np.float32), seed)


def fixed_unigram_candidate_sampler(
    true_classes: Tensor,
    num_true: SizeLike,
    num_sampled: SizeLike,
    unique: bool,
    range_max: SizeLike,
    vocab_file: str = "",
    distortion: float = 1.0,
    num_reserved_ids: int = 0,
    num_shards: int = 1,
    shard: int = 0,
    unigrams: Sequence[float] = (),
    seed: Seed = None,
    name: str | None = None,
) -> Candidates:
    """Draws classes by their frequencies; as `uniform_candidate_sampler`.

    Args:
        true_classes: As there, and so are those that are not listed.
        num_true: As there.
        num_sampled: As there.
        unique: As there.
        range_max: The number of classes.
        vocab_file: A file with a class in each line, the last of whose parts between commas is its frequency.
        distortion: The power that frequencies are raised to; 0 makes all equal.
        num_reserved_ids: How many classes stand before those of the frequencies, and are never drawn.
        num_shards: Must be 1: the whole range is drawn from.
        shard: Must be 0.
        unigrams: The frequencies, instead of a file.
        seed: As there.
        name: As there.

    Source: tf.random.fixed_unigram_candidate_sampler.
    """
    if (num_shards, shard) != (1, 0):
        raise ArgumentError("Classes are drawn from the whole range. Leave num_shards and shard out.")
    if bool(vocab_file) == bool(len(unigrams)):
        raise ArgumentError("Frequencies are given by vocab_file or by unigrams. Received both, or none of them.")
    if vocab_file:
        with open(vocab_file) as file:
            unigrams = [float(line.rsplit(",", 1)[-1]) for line in file if line.strip()]
    weights = np.concatenate([np.zeros(num_reserved_ids), np.asarray(unigrams, np.float64) ** distortion])
    count = dispatch.to_static(range_max)
    if len(weights) != count:
        raise ArgumentError(f"There must be a frequency for each of {count} classes. Received: {len(weights)}.")
    chances = (weights / weights.sum()).astype(np.float32)
    return _draw(true_classes, dispatch.to_static(num_sampled), unique, chances, seed)


def all_candidate_sampler(
    true_classes: Tensor,
    num_true: SizeLike,
    num_sampled: SizeLike,
    unique: bool,
    seed: Seed = None,
    name: str | None = None,
) -> Candidates:
    """Returns all classes from 0 on, each expected once. Source: tf.random.all_candidate_sampler."""
    count = dispatch.to_static(num_sampled)
    shape = tuple(dispatch.pick(true_classes)[1].shape)
    return Candidates(as_host(np.arange(count)), as_host(np.ones(shape, np.float32)), as_host(np.ones(count, "f4")))


def _draw(true_classes: Tensor, count: int, unique: bool, chances: np.ndarray[Any, Any], seed: Seed) -> Candidates:
    if not unique:
        xp, u = dispatch.pick(uniform((count,), seed=seed))
        limits = xp.asarray(np.cumsum(chances, dtype=np.float64).astype(np.float32))
        numbers = xp.minimum(xp.searchsorted(limits, u, side="right"), len(chances) - 1)
        tries: Any = None
    else:
        if count > np.count_nonzero(chances):
            raise ArgumentError(
                f"At most {np.count_nonzero(chances)} classes can be drawn, each once. Received: {count}."
            )
        xp, u = dispatch.pick(uniform((len(chances),), seed=seed))
        with np.errstate(divide="ignore"):
            # Gumbel's trick: the order of these is that in which classes come if those drawn before are refused.
            weights = xp.asarray(np.log(chances)) - xp.log(-xp.log(xp.maximum(u, np.float32(1e-38))))
        numbers = xp.argsort(-weights)[:count]
        # Before a new class so many were refused: a geometric number, by the chance of those that were there.
        there = xp.cumsum(xp.asarray(chances)[numbers])[:-1]
        _, v = dispatch.pick(uniform((count - 1,), seed=seed))
        v = dispatch.to_array(xp, v)
        refused = xp.floor(xp.log(xp.maximum(v, np.float32(1e-38))) / xp.log(xp.clip(there, 1e-38, 1 - 1e-7)))
        tries = count + xp.sum(refused)

    def expected(classes: Tensor) -> Any:
        chance = xp.asarray(chances)[classes]
        if tries is None:
            return chance * count
        # One chance among the tries; without a refusal TensorFlow takes the product.
        return xp.where(tries == count, chance * count, -xp.expm1(tries * xp.log1p(-chance))).astype("float32")

    true = dispatch.to_array(xp, dispatch.pick(true_classes)[1])
    drawn = dispatch.give_exact(
        xp, numbers.astype(np.int64 if xp is dispatch.HOST else dispatch.usable_dtype(xp, np.int64))
    )
    return Candidates(drawn, dispatch.give(xp, expected(true)), dispatch.give(xp, expected(numbers)))


def compute_accidental_hits(
    true_classes: Tensor, sampled_candidates: Tensor, num_true: SizeLike, seed: Seed = None, name: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Finds classes that were drawn, and are true of an example.

    Returns:
        The example, int32, the place among those drawn, int64, and the least float32 number, for each.

    Source: tf.nn.compute_accidental_hits.
    """
    true = read_values("tf.nn.compute_accidental_hits", dispatch.pick(true_classes)[1])
    drawn = read_values("tf.nn.compute_accidental_hits", dispatch.pick(sampled_candidates)[1])
    rows, columns, places = np.nonzero(true[:, :, None] == drawn)
    del columns
    least = np.full(len(rows), np.finfo(np.float32).min, np.float32)
    return as_host(rows.astype(np.int32)), as_host(places.astype(np.int64)), as_host(least)


def nce_loss(
    weights: Tensor,
    biases: Tensor,
    labels: Tensor,
    inputs: Tensor,
    num_sampled: SizeLike,
    num_classes: SizeLike,
    num_true: SizeLike = 1,
    sampled_values: Any = None,
    remove_accidental_hits: bool = False,
    name: str = "nce_loss",
) -> Tensor:
    """Returns the noise-contrastive loss of each example.

    Args:
        weights: `[classes, features]`, or parts of it in a list, one after another.
        biases: `[classes]`.
        labels: `[batch, num_true]`: the true classes.
        inputs: `[batch, features]`.
        num_sampled: How many classes are drawn for a batch.
        num_classes: The number of classes.
        num_true: How many are true of an example.
        sampled_values: What a sampler returned; by default `log_uniform_candidate_sampler` draws, none twice.
        remove_accidental_hits: Whether true classes that were drawn do not count as noise.
        name: Its name in a model_fn.

    Returns:
        `[batch]`.

    Source: tf.nn.nce_loss.
    """
    logits, targets = _sampled_logits(
        weights,
        biases,
        labels,
        inputs,
        num_sampled,
        num_classes,
        num_true,
        sampled_values,
        remove_accidental_hits,
        None,
    )
    xp, losses = dispatch.pick(sigmoid_cross_entropy_with_logits(targets, logits))
    return dispatch.give(xp, xp.sum(losses, axis=-1))


def sampled_softmax_loss(
    weights: Tensor,
    biases: Tensor,
    labels: Tensor,
    inputs: Tensor,
    num_sampled: SizeLike,
    num_classes: SizeLike,
    num_true: SizeLike = 1,
    sampled_values: Any = None,
    remove_accidental_hits: bool = True,
    seed: Seed = None,
    name: str = "sampled_softmax_loss",
) -> Tensor:
    """Returns the loss of each example by a softmax over its true and the drawn classes; arguments as of `nce_loss`.

    Source: tf.nn.sampled_softmax_loss.
    """
    logits, targets = _sampled_logits(
        weights,
        biases,
        labels,
        inputs,
        num_sampled,
        num_classes,
        num_true,
        sampled_values,
        remove_accidental_hits,
        seed,
    )
    return softmax_cross_entropy_with_logits(targets, logits)


def _sampled_logits(
    weights: Tensor,
    biases: Tensor,
    labels: Tensor,
    inputs: Tensor,
    num_sampled: SizeLike,
    num_classes: SizeLike,
    num_true: SizeLike,
    sampled_values: Any,
    remove_hits: bool,
    seed: Seed = None,
) -> tuple[Tensor, Tensor]:
    """Returns logits `[batch, num_true + num_sampled]`, and the share of each that is true."""
    true_count = dispatch.to_static(num_true)
    if isinstance(weights, (list, tuple)):
        from lockstep.compat.tensorflow._ops.arrays import concat

        weights = weights[0] if len(weights) == 1 else concat(list(weights), 0)
    labels = cast(labels, np.int64)
    if sampled_values is None:
        sampled_values = log_uniform_candidate_sampler(labels, num_true, num_sampled, True, num_classes, seed)
    sampled, true_expected, sampled_expected = (stop_gradient(value) for value in sampled_values)
    xp, x, y, drawn, true_often, drawn_often = dispatch.pick(inputs, labels, sampled, true_expected, sampled_expected)
    parts = (gather(table, ids) for table in (weights, biases) for ids in (labels, sampled))
    # Any of them may be JAX's: then all are computed by it.
    xp, x, true_weights, drawn_weights, true_bias, drawn_bias = dispatch.pick(x, *parts)
    y, drawn, true_often, drawn_often = (dispatch.to_array(xp, v) for v in (y, drawn, true_often, drawn_often))
    y = y.reshape(-1, true_count)
    true_weights, true_bias = true_weights.reshape(*y.shape, -1), true_bias.reshape(y.shape)
    true_logits = xp.sum(x[:, None, :] * true_weights, axis=-1) + true_bias - xp.log(true_often.reshape(y.shape))
    drawn_logits = xp.matmul(x, drawn_weights.T) + drawn_bias - xp.log(drawn_often)
    if remove_hits:
        hits = xp.sum(y[:, :, None] == drawn, axis=1)
        drawn_logits = drawn_logits + hits.astype("float32") * np.finfo(np.float32).min
    logits = xp.concatenate([true_logits, drawn_logits], axis=1)
    shares = [xp.full_like(true_logits, 1 / true_count), xp.zeros_like(drawn_logits)]
    return dispatch.give(xp, logits), dispatch.give(xp, xp.concatenate(shares, axis=1))


named.record_names(globals())
