"""Additions for CPUs, each kept for its figures; without this package everything runs on XLA and Gloo. Private.

    lowerings          operations in place of those that XLA computes slowly
    onednn             oneDNN's convolutions and products, as custom calls
    targets, abi       custom calls that are functions of Python
    compile_process    has programs compiled in a process of its own
    compile_program    what that process does
    backend            registers these, and an option of XLA's compiler for loops
    shared_memory      the all-reduce between processes of one machine
    partitioner        divides steps so that their sums can take it

`register` tells the engine's registry (`lockstep._engine.step.backends`); the engine imports nothing from here.
`LOCKSTEP_XLA_LOWERINGS=0` switches the lowerings and oneDNN off, `LOCKSTEP_ONEDNN=0` oneDNN alone,
`LOCKSTEP_SHARED_MEMORY=0` the all-reduce and the partitioner, `LOCKSTEP_COMPILE_PROCESS=0` the compiler's process.
"""

from __future__ import annotations


def register() -> None:
    """Registers the CPU's backend with the engine."""
    # Not above: the process that compiles a program has no time to import jax.
    from lockstep._cpu.backend import CpuBackend
    from lockstep._engine.step import backends

    backends.register("cpu", CpuBackend())
