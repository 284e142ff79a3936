"""TensorFlow's `session_config`: settings that change no result are accepted, others refused."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from lockstep._engine.runtime import local_devices
from lockstep.errors import ArgumentError, UnsupportedError

_CORES = (
    "XLA runs on all cores. To use fewer, start the process under taskset; to make several devices of one CPU, call "
    "lockstep.config.set_logical_cpu_devices."
)
_THREADS = ("inter_op_parallelism_threads", "intra_op_parallelism_threads")
_MEMORY = "Set XLA_PYTHON_CLIENT_MEM_FRACTION in the environment instead, such as 0.5."
_DEVICES = "Set CUDA_VISIBLE_DEVICES in the environment, or JAX_PLATFORMS=cpu to use no GPU."
_LOGGING = "Use jax.log_compiles() to see what is compiled; sharding.device_set of an array says where it is."
_COMPILER = "XLA optimises by itself; set XLA_FLAGS in the environment to change how."


class _Settings:
    """Attributes of fixed names, each of which can be set to some values."""

    # For each name the default, the other values that are allowed, and what to do instead of the rest.
    _RULES: ClassVar[dict[str, tuple[Any, tuple[Any, ...], str]]]

    def __init__(self, **settings: object) -> None:
        for name, value in settings.items():
            setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._RULES:
            raise AttributeError(f"{type(self).__name__} has {', '.join(self._RULES)}. Received: {name}.")
        return self._RULES[name][0]

    def __setattr__(self, name: str, value: object) -> None:
        """Checks a setting.

        Raises:
            ArgumentError: There is no such setting.
            UnsupportedError: The value would have to change how something is computed.
        """
        if name not in self._RULES:
            known = ", ".join(self._RULES)
            raise ArgumentError(f"{type(self).__name__} has {known}. Received: {name}. Leave it out.")
        default, others, advice = self._RULES[name]
        if value not in (default, *others):
            allowed = ", ".join(map(repr, (default, *others)))
            raise UnsupportedError(f"{type(self).__name__}.{name} must be {allowed}. Received: {value!r}. {advice}")
        object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"


class GPUOptions(_Settings):
    """Settings of GPU memory.

    Attributes:
        allow_growth: Whether JAX takes GPU memory as it needs it. It sets XLA_PYTHON_CLIENT_PREALLOCATE, which counts
            until JAX starts, as it does when a strategy is created; a warning is logged if it comes too late.
        per_process_gpu_memory_fraction: Must stay 0, the default: set XLA_PYTHON_CLIENT_MEM_FRACTION.
        visible_device_list: Must stay "", the default: set CUDA_VISIBLE_DEVICES.
        force_gpu_compatible: May be set: it concerned the speed of copies.

    Source: tf.compat.v1.GPUOptions.
    """

    _RULES: ClassVar = {
        "allow_growth": (False, (True,), ""),
        "per_process_gpu_memory_fraction": (0.0, (), _MEMORY),
        "visible_device_list": ("", (), _DEVICES),
        "force_gpu_compatible": (False, (True,), ""),
    }

    def __setattr__(self, name: str, value: object) -> None:
        """Checks a setting."""
        super().__setattr__(name, value)
        if name != "allow_growth" or not value:
            return
        # Imported late: a configuration alone does not need JAX.
        import jax
        from jax._src import xla_bridge

        # JAX reads the variable once, when it makes its backends.
        if not xla_bridge.backends_are_initialized():
            os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        elif jax.default_backend() == "gpu" and os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE") != "false":
            logging.getLogger("lockstep").warning(
                "GPUOptions.allow_growth came too late: JAX has taken the memory. Set "
                "XLA_PYTHON_CLIENT_PREALLOCATE=false in the environment, or make the options above everything that "
                "computes."
            )


class ConfigProto(_Settings):
    """Settings of a session; only those that change no result.

    Attributes:
        allow_soft_placement: May be set: JAX computes where the values are.
        log_device_placement: Must stay false, the default.
        gpu_options: `GPUOptions`.
        inter_op_parallelism_threads: Must stay 0, the default, or be at least the number of cores: XLA runs on all.
        intra_op_parallelism_threads: See `inter_op_parallelism_threads`.
        isolate_session_state: May be set: there are no sessions that could share state.
        device_count: Must stay {}, the default, or be {"GPU": 0} where JAX has no GPU to use.
        graph_options: Must stay `None`, the default.
        device_filters: Names of jobs and tasks, such as "/job:ps"; by default none. Whatever they say, a task sees the
            servers and itself.

    Source: tf.compat.v1.ConfigProto.
    """

    _RULES: ClassVar = {
        "allow_soft_placement": (False, (True,), ""),
        "log_device_placement": (False, (), _LOGGING),
        "gpu_options": (None, (), ""),
        "inter_op_parallelism_threads": (0, (), _CORES),
        "intra_op_parallelism_threads": (0, (), _CORES),
        "isolate_session_state": (False, (True,), ""),
        "device_count": (MappingProxyType({}), (), _DEVICES),
        "graph_options": (None, (), _COMPILER),
        "device_filters": ([], (), ""),
    }

    def __init__(
        self, gpu_options: GPUOptions | None = None, device_filters: Sequence[str] = (), **settings: object
    ) -> None:
        """Makes settings; see the class."""
        options = GPUOptions() if gpu_options is None else gpu_options
        super().__init__(gpu_options=options, device_filters=device_filters, **settings)

    def __setattr__(self, name: str, value: object) -> None:
        """Checks a setting."""
        # The usual way to keep TensorFlow off GPUs changes nothing where there are none.
        is_no_gpu = name == "device_count" and value == {"GPU": 0} and not local_devices.gpu_count()
        if is_no_gpu or (name in _THREADS and isinstance(value, int) and value >= (os.cpu_count() or 1)):
            object.__setattr__(self, name, value)
        elif name == "device_filters":
            object.__setattr__(self, name, _check_filters(value))
        elif name != "gpu_options":
            super().__setattr__(name, value)
        elif isinstance(value, GPUOptions):
            object.__setattr__(self, name, value)
        else:
            example = "GPUOptions(allow_growth=True)"
            raise ArgumentError(f"gpu_options must be a GPUOptions. Received: {value!r}. Example: {example}")


def _check_filters(value: object) -> list[str]:
    """Returns filters as a list, which programs append to."""
    if isinstance(value, (list, tuple)) and all(isinstance(each, str) and each.startswith("/job:") for each in value):
        return list(value)
    raise ArgumentError(
        f"device_filters is a list of names of jobs and tasks. Received: {value!r}. Example: "
        "ConfigProto(device_filters=['/job:ps', '/job:worker/task:1'])"
    )
