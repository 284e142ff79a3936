"""Jaxprs that are equal, as one object: what JAX compiles, it keeps by the identity of jaxprs."""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from typing import Any

import jax
import keras

from lockstep._engine.step.jaxprs import constants_of, equations, is_jaxpr, open_jaxpr
from lockstep._types import Jaxpr

# So many are remembered; the oldest are compiled anew.
_MOST = 2048
_CUSTOM = ("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
_LIBRARIES = tuple(os.path.dirname(str(module.__file__)) + os.sep for module in (jax, keras))
_first: OrderedDict[str, Any] = OrderedDict()
_known: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def canonical(params: dict[str, Any]) -> dict[str, Any]:
    """Returns the parameters of an equation with the first of all equal jaxprs in place of each; else as they are."""
    changed = None
    for name, value in params.items():
        found = value
        if is_jaxpr(value):
            found = first_equal(value)
        elif type(value) is tuple and value and is_jaxpr(value[0]):
            found = tuple(first_equal(v) if is_jaxpr(v) else v for v in value)
        if found is not value:
            changed = {**(changed or params), name: found}
    return changed or params


def first_equal(jaxpr: Jaxpr) -> Jaxpr:
    """Returns the first jaxpr that was equal to this one, or this one."""
    found = _known.get(jaxpr)
    if found is None:
        found = _find(jaxpr)
        # A value that is its own key would never be let go.
        _known[jaxpr] = _SELF if found is jaxpr else found
    return jaxpr if found is _SELF else found


_SELF = object()


def _find(jaxpr: Jaxpr) -> Jaxpr:
    # Constants are arrays, which the text does not show; rules of derivatives it shows by their names alone.
    if len(constants_of(jaxpr)) or any(_is_hidden(eqn) for eqn in equations(jaxpr)):
        return jaxpr
    # With the text of an address the object there is kept, so that no other can have the same.
    text = f"{type(jaxpr).__name__} {open_jaxpr(jaxpr).pretty_print(use_color=False)} {jaxpr.in_avals!s}"
    found = _first.setdefault(text, jaxpr)
    _first.move_to_end(text)
    if len(_first) > _MOST:
        _first.popitem(last=False)
    return found


def _is_hidden(eqn: Any) -> bool:
    """Returns whether the text of an equation leaves out what may differ."""
    if any(len(constants_of(value)) for value in eqn.params.values() if is_jaxpr(value)):
        return True
    if eqn.primitive.name not in _CUSTOM:
        return False
    # A rule of a library is known by its name and line; one of a program may hold values of its own.
    rules = [getattr(value, "debug_info", None) for value in eqn.params.values()]
    places = [str(getattr(rule, "func_filename", None) or "") for rule in rules if rule is not None]
    return not places or not all(place.startswith(_LIBRARIES) for place in places)
