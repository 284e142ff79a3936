"""Which operations a program of an export may hold: none that reaches beyond its own arrays.

XLA checks the shapes of what it compiles itself. A custom call it only passes on, by name, to code that is registered
in the process, with whatever arrays the program says: `lapack_sgetrf_ffi` with a result smaller than its operand writes
beyond it. So those names are allowed that jax and XLA expand by themselves, and no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jax import export
from jax._src.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

_CUSTOM_CALL = "stablehlo.custom_call"
# They wait for a host, or another process, that takes part.
_OF_OTHERS = frozenset(f"stablehlo.{name}" for name in ("infeed", "outfeed", "send", "recv"))
# What programs for any number of examples, on any kind of device, hold; jax or XLA replaces each by operations with
# checked shapes before it compiles.
_EXPANDED = frozenset(
    {
        "Sharding",
        "annotate_device_placement",
        "shape_assertion",
        "stablehlo.dynamic_approx_top_k",
        "stablehlo.dynamic_reduce_window",
        "stablehlo.dynamic_rng_bit_generator",
        "stablehlo.dynamic_top_k",
    }
)


def foreign(program: export.Exported) -> str | None:
    """Returns the first operation of a program that may reach beyond its arrays, for a message, or `None`."""
    with mlir.make_ir_context() as context:
        module = stablehlo.deserialize_portable_artifact(context, program.mlir_module_serialized)
        return next(filter(None, map(_reaching, _operations(module.operation))), None)


def _operations(operation: Any) -> Iterator[Any]:
    yield operation
    for region in operation.regions:
        for block in region:
            for inner in block:
                yield from _operations(inner.operation)


def _reaching(operation: Any) -> str | None:
    if operation.name in _OF_OTHERS:
        return operation.name
    if operation.name != _CUSTOM_CALL:
        return None
    target = ir.StringAttr(operation.attributes["call_target_name"]).value
    return None if target in _EXPANDED else f"a custom call of {target!r}"
