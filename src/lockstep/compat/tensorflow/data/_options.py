"""tf.data.Options: lockstep.data's, with the options by which TensorFlow tunes speed, which change no result."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

import lockstep.data as _data
from lockstep.data.internal import OptionTypeError, set_option

__all__ = ["AutotuneAlgorithm", "AutotuneOptions", "DistributeOptions", "ExternalStatePolicy", "OptimizationOptions"]
__all__ += ["Options", "ThreadingOptions"]


class AutotuneAlgorithm(enum.Enum):
    """Algorithms by which TensorFlow tunes a pipeline. Source: tf.data.experimental.AutotuneAlgorithm."""

    DEFAULT = 0
    HILL_CLIMB = 1
    GRADIENT_DESCENT = 2
    MAX_PARALLELISM = 3
    STAGE_BASED = 4


class ExternalStatePolicy(enum.Enum):
    """Policies for functions with state, which are called for each element here, whatever is said.

    Source: tf.data.experimental.ExternalStatePolicy.
    """

    WARN = 0
    IGNORE = 1
    FAIL = 2


def _set_checked(options: Any, name: str, value: object, kind: type | tuple[type, ...]) -> None:
    """Sets an option to `None` or a value of a type, as TensorFlow does."""
    # bool is an int to Python, and not to TensorFlow.
    is_right = isinstance(value, kind) and (kind is not int or not isinstance(value, bool))
    if value is not None and not is_right:
        raise OptionTypeError(
            f'Property "{name}" must be of type {kind}, got: {value!r} of type: {type(value)}. Give one of that type.'
        )
    set_option(options, name, value)


@dataclass
class AutotuneOptions:
    """Options of TensorFlow's tuning at run time; lockstep tunes by itself.

    Source: tf.data.experimental.AutotuneOptions.

    Attributes:
        enabled: Whether TensorFlow tunes.
        cpu_budget: How many cores it plans with.
        ram_budget: How many bytes.
        autotune_algorithm: How.
    """

    enabled: bool | None = None
    cpu_budget: int | None = None
    ram_budget: int | None = None
    autotune_algorithm: AutotuneAlgorithm | None = None

    def __setattr__(self, name: str, value: object) -> None:
        """Checks the value, and sets it."""
        kinds: dict[str, type] = {"enabled": bool, "autotune_algorithm": AutotuneAlgorithm}
        _set_checked(self, name, value, kinds.get(name, int))


@dataclass
class OptimizationOptions:
    """Options of rewrites that change no element; lockstep plans its own.

    Source: tf.data.experimental.OptimizationOptions.
    """

    apply_default_optimizations: bool | None = None
    filter_fusion: bool | None = None
    filter_parallelization: bool | None = None
    inject_prefetch: bool | None = None
    map_and_batch_fusion: bool | None = None
    map_and_filter_fusion: bool | None = None
    map_fusion: bool | None = None
    map_parallelization: bool | None = None
    noop_elimination: bool | None = None
    parallel_batch: bool | None = None
    seq_interleave_prefetch: bool | None = None
    shuffle_and_repeat_fusion: bool | None = None

    def __setattr__(self, name: str, value: object) -> None:
        """Checks the value, and sets it."""
        _set_checked(self, name, value, bool)


@dataclass
class DistributeOptions(_data.DistributeOptions):
    """Options of how a strategy distributes a dataset. Source: tf.data.experimental.DistributeOptions.

    Attributes:
        auto_shard_policy: How it is divided among workers.
        num_devices: Any number: strategies know their devices.
    """

    def __setattr__(self, name: str, value: object) -> None:
        """Checks the value, and sets it."""
        if name == "num_devices":
            _set_checked(self, name, value, int)
            return
        super().__setattr__(name, value)


@dataclass
class ThreadingOptions(_data.ThreadingOptions):
    """Options of the threads that compute elements. Source: tf.data.ThreadingOptions.

    Attributes:
        private_threadpool_size: How many threads compute elements at once, at most.
        max_intra_op_parallelism: Any number: an element is computed by one thread.
    """

    def __setattr__(self, name: str, value: object) -> None:
        """Checks the value, and sets it."""
        if name == "max_intra_op_parallelism":
            _set_checked(self, name, value, int)
            return
        super().__setattr__(name, value)


_FLAGS = ("experimental_slack", "experimental_symbolic_checkpoint", "experimental_warm_start")
_NESTED: dict[str, type] = {
    "autotune": AutotuneOptions,
    "experimental_distribute": DistributeOptions,
    "experimental_optimization": OptimizationOptions,
    "threading": ThreadingOptions,
}


@dataclass
class Options(_data.Options):
    """Options of a dataset. Source: tf.data.Options.

    `deterministic` and `experimental_distribute` are honoured, and `threading`. The others tune TensorFlow's speed:
    they are kept and change nothing.
    """

    experimental_distribute: _data.DistributeOptions = field(default_factory=DistributeOptions)
    threading: _data.ThreadingOptions = field(default_factory=ThreadingOptions)
    autotune: AutotuneOptions = field(default_factory=AutotuneOptions)
    experimental_optimization: OptimizationOptions = field(default_factory=OptimizationOptions)
    experimental_external_state_policy: ExternalStatePolicy | None = None
    experimental_slack: bool | None = None
    experimental_symbolic_checkpoint: bool | None = None
    experimental_warm_start: bool | None = None
    dataset_name: str | None = None
    framework_type: list[str] | None = None

    @property
    def experimental_autotune(self) -> bool | None:
        """Returns `autotune.enabled`, by its older name."""
        return self.autotune.enabled

    def __setattr__(self, name: str, value: object) -> None:
        """Checks the value, and sets it."""
        if name == "experimental_threading":
            name = "threading"
        if name == "experimental_autotune":
            self.autotune.__setattr__("enabled", value)
        elif name in _NESTED:
            _set_checked(self, name, value, _NESTED[name])
        elif name in _FLAGS:
            _set_checked(self, name, value, bool)
        elif name == "experimental_external_state_policy":
            _set_checked(self, name, value, ExternalStatePolicy)
        elif name == "framework_type":
            _set_checked(self, name, value, list)
        elif name == "dataset_name":
            _set_checked(self, name, value, str)
        else:
            super().__setattr__(name, value)
