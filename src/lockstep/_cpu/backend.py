"""The CPU's backend, as the engine's registry takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jax.extend.core import ClosedJaxpr

from lockstep._cpu import compiler_options, setting
from lockstep._cpu.lowerings.rewrite import rewritten
from lockstep._cpu.shared_memory.target import NAME
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step import backends
from lockstep._engine.step.compiler import TracedStep
from lockstep._engine.step.protocol import Step
from lockstep._engine.step.replicas import Device, Replicas


def register() -> None:
    """Registers the CPU's backend with the engine."""
    backends.register("cpu", CpuBackend())


class CpuBackend:
    """Additions to programs of CPU devices; see `backends.Backend`."""

    all_reduce_target = NAME

    def settings(self) -> Mapping[str, object]:
        """Returns what all processes must have alike: programs that round differently give weights that differ."""
        return {setting.VARIABLE: setting.enabled()}

    def connect(
        self, runtime: Runtime, devices: Sequence[Device], axis: str, peer_seconds: float | None
    ) -> backends.AllReduce | None:
        """Returns the all-reduce through shared memory, if all processes are on this machine."""
        # Only a job of several processes needs it.
        from lockstep._cpu.shared_memory.sharing import share

        return share(runtime, devices, axis, peer_seconds)

    def rewrite(self, jaxpr: ClosedJaxpr) -> ClosedJaxpr:
        """Returns a program with the lowerings."""
        return rewritten(jaxpr) if setting.enabled() else jaxpr

    def compiler_options(self) -> dict[str, bool | str]:
        """Returns the option for loops."""
        return compiler_options.compiler_options()

    def partition(
        self, step: TracedStep, state: Any, batch: Any, replicas: Replicas, axes: Sequence[int | None] | None
    ) -> Step | None:
        """Returns the step of one replica; `None` if a part of it has no sound rule."""
        # Only a job of several processes needs it.
        from lockstep._cpu.partitioner import partitioned_jaxpr

        return partitioned_jaxpr(step.jaxpr, step.structure, state, batch, replicas, axes)
