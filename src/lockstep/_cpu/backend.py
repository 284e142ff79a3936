"""The CPU's backend, as the engine's registry takes it, and its compiler option for loops."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence

import jax

from lockstep._cpu import compile_process
from lockstep._cpu.lowerings.rewrite import rewrite
from lockstep._cpu.onednn import library
from lockstep._cpu.shared_memory.custom_call import NAME
from lockstep._engine.runtime import environment
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step import backends
from lockstep._engine.step.compiler import TracedStep
from lockstep._engine.step.protocol import Step
from lockstep._engine.step.replicas import Device, Replicas
from lockstep._types import Batch, Jaxpr, State

_log = logging.getLogger(__name__)

VARIABLE = "LOCKSTEP_XLA_LOWERINGS"
# Has XLA leave what a loop carries where it is, in place of a copy in each round.
#
# A step reads a layer's kernel twice: for the output, and for the gradient of the input, on which the new kernel does
# not depend. By default XLA's CPU compiler looks only at what depends on what. As far as that goes the new kernel may
# be there first, so the old one is copied, in each round and on one core. Its analysis of regions puts the two in
# order.
#
# On 2 cores (EPYC, medians of 40 to 60): a step of an MLP of 270,000 parameters took 472 us, not 500, with 0.94 MB
# beside the state, not 1.2; one of six layers, 128 wide, 198 us, not 206. With kernels of 1024 x 1024 it is as fast as
# before and needs 5.1 MB, not 9.2. Single steps, whose state comes from outside, gained nothing and compiled a tenth
# longer.
_LOOP_OPTIONS: dict[str, bool | str] = {"xla_cpu_copy_insertion_use_region_analysis": True}


def are_lowerings_enabled() -> bool:
    """Returns whether lockstep's lowerings are used; raises `ArgumentError` for anything but 0, 1 and nothing."""
    return environment.env_flag(VARIABLE, "lockstep's lowerings are used where they are faster than XLA's own")


class CpuBackend:
    """Additions to programs of CPU devices; see `backends.Backend`."""

    all_reduce_target = NAME

    def settings(self) -> Mapping[str, object]:
        """Returns what all processes must have alike: programs that round differently give weights that differ."""
        dnnl = library.load() if library.is_enabled() else None
        return {VARIABLE: are_lowerings_enabled(), library.VARIABLE: dnnl.version if dnnl else "not used"}

    def begin_compilation(self) -> None:
        """Has a program be compiled in a process of its own."""
        compile_process.begin()

    def end_compilation(self) -> None:
        """Has this process compile other programs again."""
        compile_process.end()

    # The parts for jobs of several processes are imported by these only.

    def connect(
        self, runtime: Runtime, devices: Sequence[Device], axis: str, peer_seconds: float | None
    ) -> backends.AllReduce | None:
        """Returns the all-reduce through shared memory, if all processes are on this machine."""
        from lockstep._cpu.shared_memory import all_reduce

        return all_reduce.connect(runtime, devices, axis, peer_seconds)

    def partition(
        self, step: TracedStep, state: State, batch: Batch, replicas: Replicas, axes: Sequence[int | None] | None
    ) -> Step | None:
        """Returns the step of one replica; `None` if a part of it has no sound rule."""
        # Only a job of several processes needs it.
        from lockstep._cpu.partitioner import partition_jaxpr

        return partition_jaxpr(step.jaxpr, step.structure, state, batch, replicas, axes)

    def rewrite(self, jaxpr: Jaxpr, is_divided: bool) -> Jaxpr:
        """Returns a program with the lowerings."""
        return rewrite(jaxpr, is_divided, library.is_enabled()) if are_lowerings_enabled() else jaxpr

    def compiler_options(self) -> dict[str, bool | str]:
        """Returns options of XLA's compiler for a program that is a loop, for `jax.jit`."""
        return dict(_LOOP_OPTIONS) if are_lowerings_enabled() and _are_known() else {}


@functools.cache
def _are_known() -> bool:
    """Returns whether this XLA has the options: it tells only when it compiles. That takes some 20 ms."""
    try:
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            jax.jit(lambda: 0, compiler_options=_LOOP_OPTIONS).lower().compile()
    except jax.errors.JaxRuntimeError as error:
        _log.debug("This XLA copies what loops carry: %s", error)
        return False
    return True
