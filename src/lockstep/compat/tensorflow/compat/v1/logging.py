"""tf.compat.v1.logging: Python's logging, under lockstep's logger."""

from __future__ import annotations

import logging as _logging
from collections.abc import Callable as _Callable

from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow._ops.function import get_logger as _get_logger
from lockstep.compat.tensorflow._types import Argument as _Argument

DEBUG = _logging.DEBUG
INFO = _logging.INFO
WARN = _logging.WARNING
ERROR = _logging.ERROR
FATAL = _logging.FATAL

__all__ = ["DEBUG", "ERROR", "FATAL", "INFO", "WARN", "debug", "error", "fatal", "flush", "get_verbosity", "info"]
__all__ += ["log", "log_every_n", "log_first_n", "log_if", "set_verbosity", "vlog", "warn", "warning"]

# For log_every_n.
_counts: dict[str, int] = {}


def set_verbosity(v: int) -> None:
    """Sets from which level on messages are logged. Source: tf.compat.v1.logging.set_verbosity."""
    _get_logger().setLevel(v)


def get_verbosity() -> int:
    """Returns from which level on messages are logged. Source: tf.compat.v1.logging.get_verbosity."""
    return _get_logger().getEffectiveLevel()


def _function(name: str, method: str, effect: str) -> _Callable[..., None]:
    def function(msg: str, *args: _Argument, **kwargs: _Argument) -> None:
        getattr(_get_logger(), method)(msg, *args, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Logs at level {effect}. Source: tf.compat.v1.logging.{name}."
    return function


debug = _function("debug", "debug", "DEBUG")
info = _function("info", "info", "INFO")
warn = warning = _function("warning", "warning", "WARN")
error = _function("error", "error", "ERROR")
# absl would end the process; TensorFlow 1 did not.
fatal = _function("fatal", "critical", "FATAL, and goes on")


def log(level: int, msg: str, *args: _Argument, **kwargs: _Argument) -> None:
    """Logs at a level. Source: tf.compat.v1.logging.log."""
    _get_logger().log(level, msg, *args, **kwargs)


def log_every_n(level: int, msg: str, n: int, *args: _Argument) -> None:
    """Logs the first and then each `n`-th time the message is given. Source: tf.compat.v1.logging.log_every_n."""
    # By the text, before its arguments are filled in.
    count = _counts.get(msg, 0)
    _counts[msg] = count + 1
    if count % n == 0:
        _get_logger().log(level, msg, *args)


def log_first_n(level: int, msg: str, n: int, *args: _Argument) -> None:
    """Logs a message the first `n` times that it is given. Source: tf.compat.v1.logging.log_first_n."""
    key = f"first {msg}"
    _counts[key] = _counts.get(key, 0) + 1
    if _counts[key] <= n:
        _get_logger().log(level, msg, *args)


def log_if(level: int, msg: str, condition: bool, *args: _Argument) -> None:
    """Logs a message if the condition is true. Source: tf.compat.v1.logging.log_if."""
    if condition:
        _get_logger().log(level, msg, *args)


def vlog(level: int, msg: str, *args: _Argument, **kwargs: _Argument) -> None:
    """Logs at a level. Source: tf.compat.v1.logging.vlog."""
    _get_logger().log(level, msg, *args, **kwargs)


def flush() -> None:
    """Makes what was logged visible. Source: tf.compat.v1.logging.flush."""
    for handler in _get_logger().handlers:
        handler.flush()


__getattr__ = _getter(__name__)
