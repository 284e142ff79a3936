"""Names for the types of values that hooks, specs and input functions exchange."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

InputFn = Callable[..., Any]
"""A function that returns a dataset, or (features, labels), and accepts some of params, config and input_context."""

Hook: TypeAlias = Any
"""A `SessionRunHook`, or an object with its methods; for listeners, a `CheckpointSaverListener`."""

Session: TypeAlias = Any
"""The session of a run, or TensorFlow's where a hook of a user's program runs elsewhere."""

EstimatorLike: TypeAlias = Any
"""An `Estimator`: its module imports those that need this name."""

Strategy: TypeAlias = Any
"""A `lockstep.distribute.Strategy`, whose private methods are used too."""
