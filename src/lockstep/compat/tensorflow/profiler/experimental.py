"""tf.profiler.experimental: profiles for TensorBoard, which jax.profiler takes."""

from __future__ import annotations

from typing import Any as _Any
from typing import NamedTuple as _NamedTuple

import jax as _jax

from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.errors import UnsupportedError as _UnsupportedError

__all__ = ["Profile", "ProfilerOptions", "Trace", "start", "stop"]


class ProfilerOptions(_NamedTuple):
    """How much a profile has in it. Source: tf.profiler.experimental.ProfilerOptions.

    Attributes:
        host_tracer_level: From 0, nothing of the host, to 3.
        python_tracer_level: 1 for calls of Python.
        device_tracer_level: 0 for nothing of devices.
        delay_ms: Must be `None`: profiles begin at once.
    """

    host_tracer_level: int = 2
    python_tracer_level: int = 0
    device_tracer_level: int = 1
    delay_ms: int | None = None


def start(logdir: str, options: ProfilerOptions | None = None) -> None:
    """Starts a profile, which `stop` writes into a directory that TensorBoard shows.

    Source: tf.profiler.experimental.start.
    """
    wanted = ProfilerOptions() if options is None else options
    if wanted.delay_ms is not None:
        raise _UnsupportedError("Profiles begin at once. Leave delay_ms out, and call start later.")
    settings = _jax.profiler.ProfileOptions()
    settings.host_tracer_level = wanted.host_tracer_level
    settings.python_tracer_level = wanted.python_tracer_level
    settings.device_tracer_level = wanted.device_tracer_level
    _jax.profiler.start_trace(str(logdir), profiler_options=settings)


def stop(save: bool = True) -> None:
    """Ends the profile and writes it. Source: tf.profiler.experimental.stop."""
    if not save:
        raise _UnsupportedError("A profile is written when it ends. Leave save=False out, and remove its directory.")
    _jax.profiler.stop_trace()


class Profile:
    """Profiles what is inside of `with Profile(logdir): ...`. Source: tf.profiler.experimental.Profile."""

    def __init__(self, logdir: str, options: ProfilerOptions | None = None) -> None:
        self._logdir, self._options = logdir, options

    def __enter__(self) -> None:
        start(self._logdir, self._options)

    def __exit__(self, *_: object) -> None:
        stop()


class Trace:
    """Names what is inside of `with Trace(name, step_num=n, _r=1): ...` in a profile.

    Source: tf.profiler.experimental.Trace.
    """

    def __init__(self, name: str, **kwargs: _Any) -> None:
        # TensorFlow's mark of a step, which JAX's class for steps makes itself.
        is_step = bool(kwargs.pop("_r", None))
        kind = _jax.profiler.StepTraceAnnotation if is_step else _jax.profiler.TraceAnnotation
        self._annotation: _Any = kind(name, **kwargs)

    def __enter__(self) -> Trace:
        self._annotation.__enter__()
        return self

    def __exit__(self, *error: _Any) -> None:
        self._annotation.__exit__(*error)

    def set_metadata(self, **kwargs: _Any) -> None:
        """Adds values to it, where this version of JAX can."""
        self._annotation.set_metadata(**kwargs)


__getattr__ = _getter(__name__)
