"""Puts the rules in front of jax's own lowerings, on the CPU only."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jax.interpreters import mlir

from lockstep._xla.registered import registered
from lockstep._xla.rules import Rule, table
from lockstep._xla.setting import enabled, switched_off
from lockstep._xla.windows import OWN_APART, apart

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_installed: set[Any] = set()


def install() -> None:
    """Registers lockstep's lowerings for the CPU; calling it again does nothing.

    What was compiled before keeps the lowering that it was compiled with. jax need not have started.

    Raises:
        ArgumentError: If LOCKSTEP_XLA_LOWERINGS is neither 0 nor 1, nor empty.
    """
    if not enabled():
        return
    with _lock:
        for primitive, rules in table().items():
            if rules and primitive not in _installed:
                _register(primitive, rules)
                _installed.add(primitive)


def _register(primitive: Any, rules: tuple[Rule, ...]) -> None:
    before = registered(primitive)
    if before is None:
        _log.debug("This jax does not tell its lowering of %s; it stays as it is.", primitive)
        return
    own, inline = before
    mlir.register_lowering(primitive, partial(_lower, rules, own), platform="cpu", inline=inline)


def _lower(rules: tuple[Rule, ...], own: Callable[..., Any], ctx: Any, *operands: Any, **params: Any) -> Any:
    """Lowers one operation with the first rule that recognises it, or with jax's own.

    The setting is read here once more, so that a program that changes it finds it honoured in what it compiles next.
    """
    if not (_is_plain(ctx) and enabled()):
        return own(ctx, *operands, **params)
    for rule in rules:
        compute = rule(*ctx.avals_in, **params)
        if compute is OWN_APART:
            with switched_off():
                return _lower_as(apart(partial(ctx.primitive.bind, **params)), ctx, operands)
        if compute is not None:
            return _lower_as(compute, ctx, operands)
    return own(ctx, *operands, **params)


def _lower_as(compute: Callable[..., Any], ctx: Any, operands: Sequence[Any]) -> Any:
    return mlir.lower_fun(compute, multiple_results=ctx.primitive.multiple_results)(ctx, *operands)


def _is_plain(ctx: Any) -> bool:
    """Whether this is a program for the CPU alone, of known shapes, divided by XLA if at all.

    Shapes that `jax.export` left open, and operands whose types say how they are divided (explicit sharding), go the
    way that jax knows.
    """
    if tuple(ctx.module_context.platforms) != ("cpu",):
        return False
    # Of an operation with one result: a `preferred_element_type` of its own.
    if not ctx.primitive.multiple_results and any(a.dtype != ctx.avals_in[0].dtype for a in ctx.avals_out):
        return False
    return all(_is_known(a) for a in (*ctx.avals_in, *ctx.avals_out))


def _is_known(aval: Any) -> bool:
    sharding = getattr(aval, "sharding", None)
    divided = sharding is not None and any(part is not None for part in sharding.spec)
    return not divided and all(type(size) is int for size in aval.shape)
