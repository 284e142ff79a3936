"""Has XLA run a program on the thread that calls it, where one CPU device is all that there is.

By default XLA's CPU client hands a program to a thread of its own, so that Python goes on meanwhile. That thread asks
for the program's memory, and glibc keeps large blocks for the main thread alone. With one heap for all threads
(`memory`) it keeps them for any, but then all that compute wait for the heap, and its blocks lie worse. So the main
thread runs the program itself where it can. What that loses is Python's part of a dispatch, which nothing hides then.

On 2 cores (EPYC, medians): MobileNetV2 at batch 16 took 0.59 s a step instead of 0.67, and some 2.5 GB, not 4; an
MLP of 270,000 parameters 7 % less time; a transformer 2 %. An LSTM, with steps of 31 ms, of which Python takes 0.9,
took 3 % more; where several steps go into a dispatch (`_step.chunks`) that is gone.
"""

from __future__ import annotations

import os
from typing import Any

from lockstep._runtime import cpu, memory

_SETTING = "jax_cpu_enable_async_dispatch"

_is_settled = False


def run_at_once() -> None:
    """Settles it for this process, which trains alone; once the backend runs, it is too late.

    Processes that train together leave it: what their devices wait for is known, and said, by another thread. So do
    several devices, which run on XLA's threads anyway. `JAX_CPU_ENABLE_ASYNC_DISPATCH` in the environment has the last
    word.
    """
    global _is_settled
    import jax
    from jax._src import distributed, xla_bridge

    is_joined = distributed.global_state.client is not None
    if xla_bridge.backends_are_initialized() or is_joined or cpu.configured_devices() > 1:
        return
    if _SETTING.upper() not in os.environ and memory.allow_heaps_of_threads():
        jax.config.update(_SETTING, False)
        _is_settled = True


def is_settled() -> bool:
    """Whether a call returns only when its program is done."""
    return _is_settled


def await_arguments(arguments: Any) -> None:
    """Waits, where programs run at once, for what one is about to be called with.

    If anything is still under way XLA hands the program to a thread of its own after all; and then the next one, which
    takes what comes of it, too.
    """
    import jax

    if _is_settled:
        jax.block_until_ready(arguments)
