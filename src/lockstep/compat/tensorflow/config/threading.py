"""tf.config.threading: XLA has one pool of threads, whose size is the machine's."""

from __future__ import annotations

import logging as _logging

from lockstep.compat.tensorflow._missing import getter as _getter

__all__ = ["get_inter_op_parallelism_threads", "get_intra_op_parallelism_threads"]
__all__ += ["set_inter_op_parallelism_threads", "set_intra_op_parallelism_threads"]

_threads = {"inter": 0, "intra": 0}


def _set(kind: str, number: int) -> None:
    # A warning, not an error: the number changes how fast results come, and no result.
    _threads[kind] = int(number)
    if number:
        _logging.getLogger("lockstep").warning(
            "XLA takes as many threads as the process may use cores, whatever tf.config.threading says. "
            "Limit the cores (taskset, or the cluster's limit of CPUs) to limit threads."
        )


def set_inter_op_parallelism_threads(num_threads: int) -> None:
    """Keeps the number, and warns that XLA goes by the cores that the process may use.

    Source: tf.config.threading.set_inter_op_parallelism_threads.
    """
    _set("inter", num_threads)


def get_inter_op_parallelism_threads() -> int:
    """Returns the number that was set, or 0. Source: tf.config.threading.get_inter_op_parallelism_threads."""
    return _threads["inter"]


def set_intra_op_parallelism_threads(num_threads: int) -> None:
    """Keeps the number, and warns that XLA goes by the cores that the process may use.

    Source: tf.config.threading.set_intra_op_parallelism_threads.
    """
    _set("intra", num_threads)


def get_intra_op_parallelism_threads() -> int:
    """Returns the number that was set, or 0. Source: tf.config.threading.get_intra_op_parallelism_threads."""
    return _threads["intra"]


__getattr__ = _getter(__name__)
