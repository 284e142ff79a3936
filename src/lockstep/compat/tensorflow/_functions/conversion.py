"""Python's conditions and loops, converted by diastatic-malt to calls of functions that can compile them.

diastatic-malt is TensorFlow's AutoGraph without TensorFlow. It rewrites a function's source: `if` becomes a call of
`if_stmt`, a call of another function one of `converted_call`, and so on. Here are the functions that it calls.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import site
import sysconfig
import threading
from collections.abc import Callable, Mapping
from typing import Any

import jax
from malt.core import ag_ctx, converter
from malt.impl import api, conversion
from malt.operators import py_builtins
from malt.pyct import errors, inspect_utils

import lockstep
from lockstep.compat.tensorflow._functions import builtins_of_python, control_flow
from lockstep.compat.tensorflow._tape import recording
from lockstep.compat.tensorflow._types import Argument
from lockstep.compat.tensorflow._visibility import PACKAGE
from lockstep.distribute.internal import Program

_PLACES = {
    *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")),
    *site.getsitepackages(),
    os.path.dirname(str(lockstep.__file__)),
}
_LIBRARIES = tuple(os.path.join(os.path.realpath(place), "") for place in _PLACES)
_no_features: Any = None
_options = functools.partial(converter.ConversionOptions, user_requested=True, optional_features=_no_features)
_OPTIONS = _options(recursive=True)
# The transpiler's caches are not made for several threads.
_lock = threading.RLock()


class _Transpiler(api.PyToPy):
    """Rewrites functions so that they call the operators of this package."""

    def get_extra_locals(self) -> dict[str, Any]:
        found = super().get_extra_locals()
        for name in control_flow.OPERATORS:
            setattr(found["ag__"], name, getattr(control_flow, name))
        found["ag__"].converted_call = converted_call
        return found


_transpiler = _Transpiler()


def convert(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that calls this one, and all of the program's functions that it calls, converted."""

    @functools.wraps(function)
    def call(*args: Argument, **kwargs: Argument) -> Any:
        with ag_ctx.ControlStatusCtx(ag_ctx.Status.ENABLED, _OPTIONS):
            return converted_call(function, args, kwargs, options=_OPTIONS)

    return api.autograph_artifact(call)


def without_conversion(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that calls this one, and whatever it calls, unconverted."""

    @functools.wraps(function)
    def call(*args: Argument, **kwargs: Argument) -> Any:
        with ag_ctx.ControlStatusCtx(ag_ctx.Status.DISABLED):
            return function(*args, **kwargs)

    return api.autograph_artifact(call)


def converted_function(function: Callable[..., Any], recursive: bool = True) -> Any:
    """Returns a function rewritten, with the attributes `ag_module` and `ag_source_map`.

    Raises:
        ValueError: If it has no source, or something in it cannot be rewritten.
    """
    options = _options(recursive=recursive)
    with _lock:
        try:
            made: Any = _transpiler.transform(function, converter.ProgramContext(options=options))
        except (errors.PyCTError, AttributeError, KeyError, NameError, AssertionError, OSError) as error:
            raise ValueError(f"{function!r} cannot be converted: {error}") from error
    found, module, source_map = made
    if not hasattr(found, "ag_module"):
        found.ag_module, found.ag_source_map = module, source_map
    return found


def converted_call(
    f: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, caller_fn_scope: Any = None, options: Any = None
) -> Any:
    """Calls a function, converted if it is the program's own.

    Args:
        f: The function.
        args: Its positional arguments.
        kwargs: Its arguments by name.
        caller_fn_scope: Of the converted function that calls it.
        options: Of the conversion; by default those of the scope.
    """
    named = dict(kwargs or {})
    if _is_tensor(f) and not args and not named:
        # `v.value()`: where it is not seen to be called, a variable's value is the tensor itself.
        return f
    if ag_ctx.control_status_ctx().status == ag_ctx.Status.DISABLED or api.is_autograph_artifact(f):
        return f(*args, **named)
    if isinstance(f, functools.partial):
        return converted_call(f.func, (*f.args, *args), {**f.keywords, **named}, caller_fn_scope, options)
    if inspect_utils.isbuiltin(f):
        in_scope = _IN_SCOPE.get(f)
        if in_scope is not None:
            return in_scope(f, args, caller_fn_scope)
        return builtins_of_python.overload_of(f)(*args, **named)
    if builtins_of_python.is_tf_range(f) and builtins_of_python.has_traced(args, named):
        return builtins_of_python.tf_range(*args, **named)
    target, given = _target(f, args)
    if target is None or (options or caller_fn_scope.callopts).internal_convert_user_code is False:
        return f(*args, **named)
    found = _convert(target)
    return f(*args, **named) if found is None else found(*given, **named)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, jax.Array)


_IN_SCOPE: dict[Any, Callable[..., Any]] = {
    eval: py_builtins.eval_in_original_context,
    super: py_builtins.super_in_original_context,
    globals: lambda f, args, scope: py_builtins.globals_in_original_context(scope),
    locals: lambda f, args, scope: py_builtins.locals_in_original_context(scope),
}
_refused: set[Any] = set()


def _target(f: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Returns the function that a call runs, if it is to be converted, and what it is given."""
    if inspect.isclass(f) or conversion.is_unsupported(f):
        return None, args
    if inspect.ismethod(f):
        target, given = f.__func__, (f.__self__, *args)
    elif inspect.isfunction(f):
        target, given = f, args
    else:
        # Objects that can be called: also layers of Keras, whose own call decides.
        target, given = type(f).__call__, (f, *args)
    # Functions of Cython have a code object, too, and no source.
    if not inspect.isfunction(target) or api.is_autograph_artifact(target) or inspect.isgeneratorfunction(target):
        return None, args
    if inspect.iscoroutinefunction(target) or _is_of_library(target):
        return None, args
    return target, given


def _is_of_library(function: Any) -> bool:
    """Returns whether a function is none of the program's: its conditions are about Python's values."""
    if not _is_library_file(function.__code__.co_filename):
        return False
    names = function.__globals__
    # Packages that are installed, and written for TensorFlow, are programs as well.
    return str(names.get("__name__")).startswith("lockstep.") or not any(
        inspect.ismodule(value) and value.__name__.startswith(PACKAGE) for value in list(names.values())
    )


@functools.cache
def _is_library_file(name: str) -> bool:
    if name.startswith("<"):
        # Code of exec and of Python's prompt has no source; a notebook's has.
        return not name.startswith("<ipython")
    return os.path.realpath(name).startswith(_LIBRARIES)


def _convert(function: Callable[..., Any]) -> Any:
    """Returns a function rewritten; `None` if it cannot be, so that it runs as it is."""
    if function.__code__ in _refused:
        return None
    try:
        return converted_function(function)
    except ValueError as error:
        _refused.add(function.__code__)
        logging.getLogger("lockstep").warning(
            "AutoGraph could not transform %r and will run it as-is: %s To silence this warning, decorate it with "
            "@tf.autograph.experimental.do_not_convert.",
            function,
            error,
        )
        return None


def is_enabled() -> bool:
    """Returns whether code that runs here is converted."""
    return ag_ctx.control_status_ctx().status == ag_ctx.Status.ENABLED


def convert_call(cls: type) -> None:
    """Converts the `call` of a class of layers where it is compiled; that of a library's class stays as it is."""
    call = vars(cls).get("call")
    if not inspect.isfunction(call) or api.is_autograph_artifact(call) or _is_of_library(call):
        return
    converted = convert(call)

    @functools.wraps(call)
    def choose(*args: Argument, **kwargs: Argument) -> Any:
        compiles = recording.is_compiling() and ag_ctx.control_status_ctx().status != ag_ctx.Status.DISABLED
        return (converted if compiles else call)(*args, **kwargs)

    cls.call = api.autograph_artifact(choose)  # pyright: ignore[reportAttributeAccessIssue]


# What strategy.run compiles is converted, as in TensorFlow what a tf.function around it compiles.
Program.convert = staticmethod(convert)
