"""Functions that decide, repeat and map; contexts that other systems need; printing."""

# ruff: noqa: D417

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Generator
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.core import Tracer
from keras.src.backend.common.name_scope import current_path

from lockstep._nest import flatten, map_structure, pack, unpack
from lockstep._types import PyTree, Tensor
from lockstep.compat.tensorflow._composite import handlers
from lockstep.compat.tensorflow._ops import dispatch
from lockstep.compat.tensorflow._ops.arrays import reverse as flip
from lockstep.compat.tensorflow._ops.arrays import stack
from lockstep.compat.tensorflow._ops.create import cast
from lockstep.compat.tensorflow._ops.map_rows import is_ragged_spec, map_rows
from lockstep.compat.tensorflow._tensor import as_host, as_tensor
from lockstep.compat.tensorflow._types import DTypeLike, Initializer, SizeLike
from lockstep.errors import ArgumentError

__all__ = ["case", "cond", "device", "foldl", "foldr", "init_scope", "map_fn", "name_scope", "no_gradient"]
__all__ += ["print", "scan", "switch_case", "timestamp", "tuple", "vectorized_map", "while_loop"]

# jax.tree sorts the keys of dicts, which does not matter to leaves; map_structure keeps them.
_leaves: Any = jax.tree.leaves
_map: Any = map_structure


def _is_traced(*trees: PyTree) -> bool:
    return any(isinstance(leaf, Tracer) for leaf in _leaves(trees))


def _value(x: Tensor) -> Any:
    return dispatch.pick(x)[1]


def init_scope() -> Any:
    """Opens a context that computes at once, with values at hand, inside of functions that are being compiled, too.

    What depends on an argument of such a function has no value there, and is an error of JAX. Source: tf.init_scope.
    """
    return jax.ensure_compile_time_eval()


def cond(pred: Tensor, true_fn: Callable[[], Any], false_fn: Callable[[], Any], name: str | None = None) -> PyTree:
    """Calls one of two functions, whichever `pred` says; under JAX's compilation both are compiled. Source: tf.cond."""
    if _is_traced(pred) or (isinstance(pred, keras.Variable) and dispatch.is_traced()):
        from lockstep.compat.tensorflow._functions.state import Branches

        return Branches(["the result"], [lambda: (true_fn(),), lambda: (false_fn(),)]).choose(_value(pred))[0]
    return true_fn() if bool(_value(pred)) else false_fn()


def _on_device(tree: PyTree) -> Any:
    return _map(lambda leaf: dispatch.to_array(dispatch.DEVICE, leaf), tree)


def switch_case(
    branch_index: Tensor, branch_fns: Any, default: Callable[[], Any] | None = None, name: str | None = None
) -> PyTree:
    """Calls the function of a list or dict that `branch_index` selects, or else `default`. Source: tf.switch_case."""
    # Functions may come with their numbers, or be numbered by their place.
    pairs: Any = branch_fns.items() if isinstance(branch_fns, dict) else branch_fns
    functions = dict(pairs if pairs and isinstance(next(iter(pairs)), (list, _tuple)) else enumerate(pairs))
    # TensorFlow takes the last function for an index out of range if there is no default.
    fallback = default or functions[max(functions)]
    if not _is_traced(branch_index):
        return functions.get(int(_value(branch_index)), fallback)()
    # lax.switch clamps its index, so that those out of range get an entry of their own, the last.
    table = [functions.get(i, fallback) for i in range(max(functions) + 1)] + [fallback]
    inside = (branch_index >= 0) & (branch_index < len(table))
    return unpack(jax.lax.switch(jnp.where(inside, branch_index, len(table) - 1), [_wrap_for_jax(f) for f in table]))


def _wrap_for_jax(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function for JAX, which calls it with packed structures."""
    return lambda *args: pack(_on_device(function(*unpack(args))))


def case(
    pred_fn_pairs: Any,
    default: Callable[[], Any] | None = None,
    exclusive: bool = False,
    strict: bool = False,
    name: str | None = None,
) -> PyTree:
    """Calls the function of the first true condition, or else `default`. Source: tf.case.

    `exclusive` checks that no other is true, on the host only; `strict` is refused.
    """
    if strict:
        raise ArgumentError("strict=True builds a graph of TensorFlow; leave it out.")
    pairs = list(pred_fn_pairs.items() if isinstance(pred_fn_pairs, dict) else pred_fn_pairs)
    # Traced conditions are not known, and TensorFlow too checks when it runs.
    if exclusive and not _is_traced([p for p, _ in pairs]) and sum(bool(_value(p)) for p, _ in pairs) > 1:
        raise ArgumentError("exclusive=True allows one true condition. Received more.")
    # TensorFlow's rule: without a default the last function is the default.
    *others, (last, last_fn) = pairs
    rest: Callable[[], Any] = (lambda: cond(last, last_fn, default)) if default else last_fn
    for predicate, function in reversed(others):
        rest = functools.partial(cond, predicate, function, rest)
    return rest()


def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: PyTree,
    shape_invariants: object = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    maximum_iterations: SizeLike = None,
    name: str | None = None,
) -> PyTree:
    """Calls `body` as long as `cond` is true; both take the variables as their arguments.

    Args:
        cond: From the variables to a truth value.
        body: From the variables to new ones.
        loop_vars: Tensors, in a list or tuple.
        shape_invariants: Refused: shapes must not change.
        parallel_iterations: The order of computation is JAX's; must be left as it is.
        back_prop: Must be true: derivatives are taken of whatever JAX can.
        swap_memory: Refused.
        maximum_iterations: Limits the number of calls.

    Source: tf.while_loop.
    """
    if shape_invariants is not None or swap_memory or not back_prop or parallel_iterations != 10:
        raise ArgumentError(
            "tf.while_loop takes no shape_invariants, parallel_iterations, back_prop or swap_memory: leave them out. "
            "Use tf.stop_gradient instead of back_prop=False."
        )
    variables = _tuple(loop_vars)
    # In a trace the body is traced once. Elsewhere Python's loop needs no compilation, and body may print.
    if _is_traced(variables) or dispatch.is_traced():
        done = _compiled_loop(cond, body, variables, maximum_iterations)
        return type(loop_vars)(done) if isinstance(loop_vars, (list, _tuple)) else done
    # On the host the condition is known after each turn.
    count, limit = 0, dispatch.to_static(maximum_iterations)
    variables = _map(as_tensor, variables)
    while (limit is None or count < limit) and bool(_value(cond(*variables))):
        updated = body(*variables)
        variables = _tuple(updated) if isinstance(updated, (list, _tuple)) else (updated,)
        count += 1
    return list(variables) if isinstance(loop_vars, list) else variables


def _compiled_loop(cond: Callable[..., Any], body: Callable[..., Any], variables: Any, limit: Any) -> Any:
    from lockstep.compat.tensorflow._functions import staging

    leaves, structure = flatten(_on_device(variables))

    def test(*arrays: Any) -> list[Any]:
        return [dispatch.to_array(dispatch.DEVICE, cond(*structure.unflatten(arrays)))]

    def turn(*arrays: Any) -> list[Any]:
        updated = body(*structure.unflatten(arrays))
        found, after = flatten(_on_device(_tuple(updated) if isinstance(updated, (list, _tuple)) else (updated,)))
        if after != structure:
            raise ArgumentError(f"body returns the structure of loop_vars, {structure}. Received: {after}.")
        return found

    return structure.unflatten(staging.while_loop(test, turn, leaves, limit))


_tuple = tuple  # The name is taken below, as TensorFlow's.


def map_fn(
    fn: Callable[[Any], Any],
    elems: PyTree,
    dtype: DTypeLike = None,
    parallel_iterations: Any = None,
    fn_output_signature: DTypeLike = None,
    name: str | None = None,
) -> PyTree:
    """Calls `fn` with each slice of `elems` along the first dimension and stacks the results.

    `elems` may be a nested structure of tensors. `fn_output_signature`, or its old name `dtype`, gives the type of the
    result where it is not nested; a `tf.RaggedTensorSpec` makes rows of different lengths of it, which `elems` may
    have, too. `parallel_iterations` is refused: JAX computes slices together.

    Source: tf.map_fn.
    """
    if parallel_iterations is not None:
        raise ArgumentError("parallel_iterations has no meaning here: JAX computes the slices together. Leave it out.")
    # The new name goes first, as in TensorFlow.
    wanted = fn_output_signature if fn_output_signature is not None else dtype
    if handlers and (is_ragged_spec(wanted) or any(type(leaf) in handlers for leaf in _leaves(elems))):
        return map_rows(fn, elems, wanted)
    xp = dispatch.library_of(*_leaves(elems))
    arrays = _map(lambda e: dispatch.to_array(xp, e), elems)
    if xp is dispatch.DEVICE:
        return _cast_result(unpack(jax.lax.map(_wrap_for_jax(fn), pack(arrays))), wanted)
    slices = [fn(_map(lambda e: as_host(e[i]), arrays)) for i in range(_leaves(arrays)[0].shape[0])]  # noqa: B023
    stacked = _map(lambda *s: dispatch.give(xp, np.stack([dispatch.to_array(xp, e) for e in s])), *slices)
    return _cast_result(stacked, wanted)


def _cast_result(result: Tensor, dtype: DTypeLike) -> Any:
    wanted = getattr(dtype, "dtype", dtype)
    return result if wanted is None or isinstance(result, (dict, list, _tuple)) else cast(result, wanted)


def vectorized_map(
    fn: Callable[[Any], Any], elems: PyTree, fallback_to_while_loop: bool = True, warn: bool = True
) -> PyTree:
    """Calls `fn` with all slices of `elems` at once, through jax.vmap, which always can.

    Source: tf.vectorized_map.
    """
    return unpack(jax.vmap(lambda e: pack(fn(unpack(e))))(pack(_on_device(elems))))


def foldl(
    fn: Callable[[Any, Any], Any], elems: PyTree, initializer: Initializer = None, name: str | None = None
) -> PyTree:
    """Combines slices from first to last: `fn(accumulated, slice)`. Source: tf.foldl."""
    # A loop of Python: compiled code unrolls it, as long as the first dimension is.
    parts = _slices(elems)
    total = parts.pop(0) if initializer is None else initializer
    for part in parts:
        total = fn(total, part)
    return total


def foldr(
    fn: Callable[[Any, Any], Any], elems: PyTree, initializer: Initializer = None, name: str | None = None
) -> PyTree:
    """Combines slices from last to first: `fn(accumulated, slice)`. Source: tf.foldr."""
    return foldl(fn, _map(lambda e: flip(e, [0]), elems), initializer)


def scan(
    fn: Callable[[Any, Any], Any],
    elems: PyTree,
    initializer: Initializer = None,
    reverse: bool = False,
    name: str | None = None,
) -> PyTree:
    """Combines slices one after the other and stacks what there is after each. Source: tf.scan."""
    parts = _slices(elems)
    parts = parts[::-1] if reverse else parts
    total = parts[0] if initializer is None else initializer
    results = [total] if initializer is None else []
    for part in parts[1:] if initializer is None else parts:
        total = fn(total, part)
        results.append(total)
    return _map(lambda *r: stack(list(r)), *(results[::-1] if reverse else results))


def _slices(elems: PyTree) -> list[Any]:
    xp = dispatch.library_of(*_leaves(elems))
    arrays = _map(lambda e: dispatch.to_array(xp, e), elems)
    return [_map(lambda e: dispatch.give(xp, e[i]), arrays) for i in range(_leaves(arrays)[0].shape[0])]  # noqa: B023


def print(
    *inputs: Tensor,
    output_stream: Any = sys.stderr,
    sep: str = " ",
    end: str = "\n",
    summarize: int = 3,
    name: str | None = None,
) -> None:
    """Prints values, to stderr unless `output_stream` (a stream, or "file://PATH" to append to) says otherwise.

    Values that JAX computes are printed when they are known. `summarize` elements of each end of an array; -1 all.

    Source: tf.print.
    """
    # Traced values are printed by a callback at run time. Known ones stay out of it, for text cannot go in.
    if _is_traced(inputs):
        is_traced = [_is_traced(i) for i in inputs]

        def write(values: list[Any]) -> None:
            waiting = iter(values)
            known = [next(waiting) if traced else i for i, traced in zip(inputs, is_traced, strict=True)]
            _write(known, output_stream, sep, end, summarize)

        jax.debug.callback(write, [i for i, traced in zip(inputs, is_traced, strict=True) if traced])
        return
    _write(list(inputs), output_stream, sep, end, summarize)


def _write(values: list[Any], stream: Any, sep: str, end: str, summarize: int) -> None:
    line = sep.join(format_value(v, summarize) for v in values) + end
    if isinstance(stream, str):
        # Opened for each line: other processes may append to it.
        with open(stream.removeprefix("file://"), "a") as file:
            file.write(line)
        return
    stream.write(line)
    stream.flush()


def format_value(value: Tensor, summarize: int) -> str:
    if isinstance(value, (jax.Array, keras.Variable, np.ndarray, np.generic)):
        array = np.asarray(value)
        if array.ndim == 0:
            # No quotes and no b"": TensorFlow prints text as it is.
            item = array.item()
            return item.decode(errors="replace") if isinstance(item, bytes) else str(array)
        # TensorFlow's summarize counts elements at each end, which numpy calls edgeitems.
        limits: Any = {"threshold": sys.maxsize} if summarize < 0 else {"threshold": 0, "edgeitems": summarize}
        return np.array2string(array, **limits)
    if isinstance(value, (list, _tuple)):
        return f"[{', '.join(format_value(v, summarize) for v in value)}]"
    return str(value)


def tuple(tensors: Tensor, control_inputs: PyTree = None, name: str | None = None) -> list[Tensor]:
    """Returns the tensors of a list; what they wait for has been carried out. Source: tf.tuple."""
    return [as_tensor(t) for t in tensors]


@contextlib.contextmanager
def name_scope(name: str | None) -> Generator[str]:
    """Opens a context whose name is put before those of Keras' variables made in it; gives its path, with a "/".

    Source: tf.name_scope.
    """
    with keras.name_scope(name or "scope"):
        yield f"{current_path()}/"


@contextlib.contextmanager
def device(device_name: Any) -> Generator[None]:
    """Opens a context whose JAX arrays are made on a device, such as "/CPU:0" or "cpu"; `None` chooses none.

    In place of an accelerator where there is none it is the CPU, with a warning.

    Raises:
        ArgumentError: If there is no such device.

    Source: tf.device.
    """
    if device_name is None:
        yield
        return
    from lockstep.distribute.internal import device_or_host

    # Without a number it is the first.
    is_kind = isinstance(device_name, str) and device_name.lower().endswith(("cpu", "gpu", "tpu"))
    with jax.default_device(device_or_host(f"{device_name}:0" if is_kind else device_name)):
        yield


def no_gradient(op_type: str) -> None:
    """Raises `ArgumentError`: JAX has no operations to register gradients for. Source: tf.no_gradient."""
    raise ArgumentError(f"JAX has no registry of gradients of operations. Received: {op_type!r}. Use tf.stop_gradient.")


def timestamp(name: str | None = None) -> Tensor:
    """Returns the seconds since 1970, as float64. Source: tf.timestamp."""
    return as_host(np.float64(time.time()))
