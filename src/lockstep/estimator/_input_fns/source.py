"""The input of a step program: batches of an input_fn."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lockstep._engine.input.distributed import DistributedSource, Distribution, of_function
from lockstep._engine.step.replicas import Replicas
from lockstep._types import Element
from lockstep.data import Dataset, InputContext
from lockstep.data.internal import inside
from lockstep.errors import InputError
from lockstep.estimator._input_fns.returned import dataset_of
from lockstep.estimator._inspection import accepts_input_context, call_input_fn
from lockstep.estimator._model_fn.function import Data

if TYPE_CHECKING:
    from lockstep.estimator._run_config import RunConfig

_log = logging.getLogger("lockstep")


class Input:
    """The batches of an input_fn for this process.

    Args:
        input_fn: Returns a dataset, or (features, labels).
        mode: "train", "eval" or "infer".
        replicas: The replicas, each of which gets batches of its own.
        is_distributed: Whether a strategy is given, so that the function gets an input_context.
        params: The Estimator's parameters.
        config: The Estimator's RunConfig.
    """

    def __init__(
        self,
        input_fn: Callable[..., Any],
        mode: str,
        replicas: Replicas,
        is_distributed: bool,
        params: Mapping[str, Any] | None,
        config: RunConfig,
    ) -> None:
        if is_distributed and mode == "train":
            _explain_sharding(input_fn, replicas)

        # Called with the input context of each pipeline of this process.
        def make(context: InputContext) -> Dataset:
            given = context if is_distributed else None
            returned = call_input_fn(input_fn, mode, params, config, given)
            return dataset_of(returned, repeat=mode == "train")

        self.distribution: Distribution = of_function(make, replicas)
        if config.tf_random_seed is not None:  # Also for a shuffle that was given no seed.
            inside.follow(self.distribution.dataset, config.tf_random_seed % 2**62)
        self.source = DistributedSource(self.distribution, features_only if mode == "infer" else with_labels)


def _explain_sharding(input_fn: Callable[..., Any], replicas: Replicas) -> None:
    runtime = replicas.runtime
    if runtime.is_alone or not runtime.is_chief or accepts_input_context(input_fn):
        return
    _log.warning(
        "Each of %d workers reads all of the data: the input_fn has no argument input_context, by which it could shard "
        "them: dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id).",
        len(runtime.tasks),
    )


def with_labels(element: Element) -> Data:
    """Takes an element of a dataset apart.

    Raises:
        InputError: If it is a tuple of anything but (features, labels).
    """
    if not isinstance(element, tuple) or hasattr(element, "_fields"):
        return Data(element)
    if len(element) != 2:
        raise InputError(
            f"An input_fn must yield (features, labels), or features alone. Received: a tuple of {len(element)}. Put "
            "several features into a dict."
        )
    return Data(element[0], element[1])


def features_only(element: Element) -> Data:
    """Takes the features of an element; predictions need no labels."""
    return Data(with_labels(element).features)
