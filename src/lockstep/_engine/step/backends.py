"""Registry of what a platform adds to step programs. The engine runs without any of it, on XLA and its collectives.

A backend rewrites traced programs, names options of XLA's compiler, has an all-reduce of its own between processes, and
divides steps so that their sums take that way. `lockstep._platforms` registers the backends that are installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import jax
from jax.extend.core import jaxpr_as_fun

from lockstep._types import Batch, Jaxpr, State

if TYPE_CHECKING:
    from lockstep._engine.runtime.runtime import Runtime
    from lockstep._engine.step.compiler import TracedStep
    from lockstep._engine.step.protocol import Step
    from lockstep._engine.step.replicas import Device, Replicas


class AllReduce(Protocol):
    """Sums over all replicas of a mesh axis, called inside `shard_map` over it."""

    @property
    def axis(self) -> str:
        """The mesh axis."""
        ...

    @property
    def replicas(self) -> int:
        """How many replicas there are along it."""
        ...

    def sum(self, values: Sequence[jax.Array]) -> list[jax.Array]:
        """Returns the sum of each value."""
        ...

    def sum_bfloat16(self, values: Sequence[jax.Array]) -> list[jax.Array]:
        """Returns the float32 sum of each bfloat16 value."""
        ...

    def begin(self) -> None:
        """Starts a program: its calls are numbered from 1 on, so that one that is traced again is the same one."""
        ...


class Backend(Protocol):
    """Additions to the programs of one platform.

    Attributes:
        all_reduce_target: Name of the custom call by which its all-reduce appears in jaxprs.
    """

    all_reduce_target: str

    def settings(self) -> Mapping[str, object]:
        """Returns settings that change what programs compute, if only in their rounding: equal on all processes."""
        ...

    def connect(
        self, runtime: Runtime, devices: Sequence[Device], axis: str, peer_seconds: float | None
    ) -> AllReduce | None:
        """Returns an all-reduce between the processes of a job; `None`, on all of them, to leave it to XLA."""
        ...

    def rewrite(self, jaxpr: Jaxpr, is_divided: bool) -> Jaxpr:
        """Returns a program that computes the same, up to rounding, and runs faster on this platform.

        Args:
            jaxpr: The program.
            is_divided: Whether XLA divides it between devices, as far as it is not in a `shard_map`.
        """
        ...

    def compiler_options(self) -> dict[str, bool | str]:
        """Returns options of XLA's compiler for programs that are a loop of steps."""
        ...

    def begin_compilation(self) -> None:
        """Prepares for a program that has been traced, and that jax compiles next on this thread."""
        ...

    def end_compilation(self) -> None:
        """Ends what `begin_compilation` has begun, whether or not the program was compiled."""
        ...

    def partition(
        self, step: TracedStep, state: State, batch: Batch, replicas: Replicas, axes: Sequence[int | None] | None
    ) -> Step | None:
        """Divides a step of the global batch, so that its sums take the backend's all-reduce.

        Args:
            step: The step.
            state: Its first argument, or the shapes and types of that.
            batch: The same of its second argument.
            replicas: Where it runs.
            axes: Along which axis each array of the state is divided; `None` for one that is not, or for all.

        Returns:
            The step of one replica; `None` to leave the division to XLA.
        """
        ...


_backends: dict[str, Backend] = {}
# One for the process: it joins a cluster once.
_all_reduce: AllReduce | None = None


def register(platform: str, backend: Backend) -> None:
    """Adds a backend for devices of a platform ("cpu", "gpu"); programs that are traced from now on use it."""
    _backends[platform] = backend


def settings(platform: str) -> Mapping[str, object]:
    """Returns the settings of a platform's backend that must be equal on all processes."""
    return _backends[platform].settings() if platform in _backends else {}


def connect(runtime: Runtime, devices: Sequence[Device], axis: str, peer_seconds: float | None = None) -> None:
    """Connects the processes of a job, in the same place on each, if their platform's backend can."""
    global _all_reduce
    backend = _backends.get(devices[0].platform)
    if backend is not None and (made := backend.connect(runtime, devices, axis, peer_seconds)) is not None:
        _all_reduce = made


def all_reduce(axis: str, replicas: int) -> AllReduce | None:
    """Returns the backend's all-reduce over all `replicas` along `axis`; `None` if XLA's is to be used."""
    # A strategy of fewer devices than the job's, such as OneDeviceStrategy beside it, is XLA's to sum.
    if _all_reduce is not None and _all_reduce.axis == axis and _all_reduce.replicas == replicas:
        return _all_reduce
    return None


def is_all_reduce(target: object) -> bool:
    """Returns whether a custom call is a backend's all-reduce: its results are equal on all replicas."""
    return any(backend.all_reduce_target == target for backend in _backends.values())


def begin_program() -> None:
    """Starts the tracing of a program; see `AllReduce.begin`."""
    if _all_reduce is not None:
        _all_reduce.begin()


def compiler_options(platform: str) -> dict[str, bool | str]:
    """Returns options of XLA's compiler for a program that is a loop of steps, for `jax.jit`."""
    return _backends[platform].compiler_options() if platform in _backends else {}


def begin_compilation(platform: str) -> None:
    """Has a platform's backend prepare for a program that jax compiles next on this thread."""
    if platform in _backends:
        _backends[platform].begin_compilation()


def end_compilation(platform: str) -> None:
    """Tells a platform's backend that the program of `begin_compilation` is compiled, or has failed."""
    if platform in _backends:
        _backends[platform].end_compilation()


def partition(
    platform: str,
    step: TracedStep,
    state: State,
    batch: Batch,
    replicas: Replicas,
    axes: Sequence[int | None] | None,
) -> Step | None:
    """Returns a step divided over the replicas by their platform's backend; see `Backend.partition`."""
    return _backends[platform].partition(step, state, batch, replicas, axes) if platform in _backends else None


def passes(platform: str, is_divided: bool = False) -> Sequence[Callable[[Jaxpr], Jaxpr]]:
    """Returns the passes over the jaxprs of programs for a platform, in their order."""
    return [partial(_backends[platform].rewrite, is_divided=is_divided)] if platform in _backends else []


def apply_passes(
    platform: str, function: Callable[..., Any], static_argnums: tuple[int, ...] = (), is_divided: bool = False
) -> Callable[..., Any]:
    """Returns a function for `jax.jit` whose jaxpr goes through the passes of a platform.

    Only lockstep's own programs go through here: a `jax.jit` of somebody else compiles as it does without lockstep.

    Args:
        platform: The devices' platform.
        function: What is to be compiled.
        static_argnums: Its arguments that are no arrays.
        is_divided: Whether it is a program of several devices, which XLA divides.
    """

    def program(*args: Any) -> Any:
        if not passes(platform, is_divided):
            return function(*args)
        # A function of its own: jax keeps what it has traced, and a step may be traced anew because it knows more.
        trace = jax.make_jaxpr(lambda *given: function(*given), static_argnums=static_argnums, return_shape=True)
        jaxpr, shapes = trace(*args)
        for apply in passes(platform, is_divided):
            jaxpr = apply(jaxpr)
        leaves = jax.tree.leaves([a for i, a in enumerate(args) if i not in static_argnums])
        return jax.tree.unflatten(jax.tree.structure(shapes), jaxpr_as_fun(jaxpr)(*leaves))

    program.__name__ = getattr(function, "__name__", "program")
    return program
