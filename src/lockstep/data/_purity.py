"""Side effects of functions, read from their bytecode.

JAX traces a function once and computes with what it recorded. A function that counts, collects, prints or draws random
numbers must instead be called for every element. Its code shows most of that: it stores to a name or in a container
outside, calls a method that changes something outside, or uses a module that is never the same twice. What the code
hides (a random number in a library), tracing twice finds.
"""

from __future__ import annotations

import builtins
import dis
import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

# A function with any instruction that is not listed here, and every function on another Python, counts as one with side
# effects: it is called for each element, in order. So a new instruction can make a program slower, and never wrong. To
# add a Python, run tests/data/test_side_effects.py and tests/data/test_purity.py on it: the meaning of an old name may
# change, as that of BINARY_OP does in 3.14, where it also takes items.
PYTHONS = ((3, 11), (3, 12), (3, 13))
# What these do to the stack is as `dis.stack_effect` says, and they change nothing but that.
_PLAIN = """
    ASYNC_GEN_WRAP BEFORE_ASYNC_WITH BEFORE_WITH BINARY_OP BUILD_CONST_KEY_MAP BUILD_LIST BUILD_MAP BUILD_SET
    BUILD_SLICE BUILD_STRING BUILD_TUPLE CACHE CALL CALL_FUNCTION_EX CALL_INTRINSIC_1 CALL_INTRINSIC_2 CALL_KW
    CHECK_EG_MATCH CHECK_EXC_MATCH CLEANUP_THROW COMPARE_OP CONTAINS_OP CONVERT_VALUE COPY_FREE_VARS DELETE_FAST
    DICT_MERGE DICT_UPDATE END_ASYNC_FOR END_FOR END_SEND EXTENDED_ARG FORMAT_SIMPLE FORMAT_VALUE FORMAT_WITH_SPEC
    FOR_ITER GET_AITER GET_ANEXT GET_AWAITABLE GET_ITER GET_LEN GET_YIELD_FROM_ITER IMPORT_FROM IMPORT_NAME IS_OP
    JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT JUMP_FORWARD JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP KW_NAMES LIST_APPEND
    LIST_EXTEND LIST_TO_TUPLE LOAD_ASSERTION_ERROR LOAD_BUILD_CLASS LOAD_CLOSURE LOAD_CONST MAKE_CELL MAKE_FUNCTION
    MAP_ADD MATCH_CLASS MATCH_KEYS MATCH_MAPPING MATCH_SEQUENCE NOP POP_EXCEPT POP_JUMP_BACKWARD_IF_FALSE
    POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE
    POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE
    POP_JUMP_IF_NOT_NONE POP_JUMP_IF_TRUE POP_TOP PRECALL PREP_RERAISE_STAR PUSH_EXC_INFO PUSH_NULL RAISE_VARARGS
    RERAISE RESUME RETURN_CONST RETURN_GENERATOR RETURN_VALUE SEND SET_ADD SET_FUNCTION_ATTRIBUTE SET_UPDATE STORE_NAME
    TO_BOOL UNARY_INVERT UNARY_NEGATIVE UNARY_NOT UNARY_POSITIVE UNPACK_EX UNPACK_SEQUENCE WITH_EXCEPT_START
    YIELD_VALUE
"""
# These are followed one by one.
_FOLLOWED = """
    BINARY_SLICE BINARY_SUBSCR COPY DELETE_ATTR DELETE_DEREF DELETE_GLOBAL DELETE_SUBSCR LOAD_ATTR LOAD_CLASSDEREF
    LOAD_DEREF LOAD_FAST LOAD_FAST_AND_CLEAR LOAD_FAST_CHECK LOAD_FAST_LOAD_FAST LOAD_GLOBAL LOAD_METHOD LOAD_NAME
    STORE_ATTR STORE_DEREF STORE_FAST STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST STORE_GLOBAL STORE_SLICE STORE_SUBSCR
    SWAP
"""
# fmt: off
# Names of methods that change their object, in Python's containers, queues, loggers, metrics and variables.
_CHANGES = frozenset({
    "append", "extend", "insert", "add", "update", "subtract", "pop", "popitem", "remove", "discard", "clear",
    "setdefault", "write", "writelines", "put", "put_nowait", "send", "appendleft", "popleft", "sort",
    "reverse", "fill", "assign", "assign_add", "assign_sub", "assign_moving_average", "inc", "increment", "log",
    "info", "warning", "debug", "error", "__setitem__", "__delitem__", "__iadd__", "__next__", "get_next",
    "get_next_as_optional",
})
_NONDETERMINISTIC = (
    "random", "numpy.random", "time", "datetime", "os", "subprocess", "socket", "secrets", "uuid", "logging",
)
# fmt: on
_FUNCTIONS = frozenset(
    id(getattr(builtins, n)) for n in ("print", "open", "input", "next", "setattr", "delattr", "globals")
)
_STORES = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR"})
_ITEM_STORES = {"STORE_SUBSCR": 2, "DELETE_SUBSCR": 2, "STORE_SLICE": 3}
_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME", "LOAD_CLASSDEREF"})
# How many names they store to.
_FAST_STORES = {"STORE_FAST": 1, "STORE_FAST_LOAD_FAST": 1, "STORE_FAST_STORE_FAST": 2}
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_SUBSCRIPTS = frozenset({"BINARY_SUBSCR", "BINARY_SLICE"})
_COMPUTING = ("BINARY", "CALL", "COMPARE", "BUILD", "FORMAT", "CONTAINS", "IS_OP")
# What a function made itself, or was given.
_LOCAL = object()
# Something outside, whose value is not known.
_EXTERNAL = object()
# Calls of calls that are followed; deeper ones are left to the two traces.
_DEPTH = 4


def known_opcodes(implementation: str, version: tuple[int, int]) -> frozenset[str]:
    """Returns the names of the instructions of a Python that are understood; none of a Python that is not known."""
    is_known = implementation == "cpython" and version in PYTHONS
    return frozenset((_PLAIN + _FOLLOWED).split()) if is_known else frozenset()


KNOWN = known_opcodes(sys.implementation.name, sys.version_info[:2])


def has_side_effects(function: Callable[..., Any]) -> bool:
    """Returns whether the code of `function`, or of functions of the user that it calls, shows side effects.

    Code that is not understood (of a Python whose instructions are not known) counts as code with side effects.
    """
    return _scan(function, _DEPTH, set(), _EffectScan)


def loads_iterator(function: Callable[..., Any]) -> bool:
    """Returns whether the code takes elements from an iterator that was made outside of it."""
    return loads_value(function, _is_iterator)


def loads_value(function: Callable[..., Any], wanted: Callable[[Any], bool]) -> bool:
    """Returns whether the code loads an external value of a kind, by name or as an attribute."""
    return _scan(function, _DEPTH, set(), functools.partial(_LoadScan, wanted))


def _scan(function: Any, depth: int, seen: set[int], scan: Callable[..., _BytecodeScan]) -> bool:
    if id(function) in seen or depth == 0:
        return False
    seen.add(id(function))
    # A partial has no code of its own.
    if isinstance(function, functools.partial):
        return _scan(function.func, depth, seen, scan)
    if hasattr(function, "__wrapped__") and _scan(function.__wrapped__, depth, seen, scan):
        return True
    target, owner = function, _LOCAL
    if isinstance(target, types.MethodType):
        target, owner = target.__func__, target.__self__
    elif not isinstance(target, types.FunctionType):
        target, owner = type(target).__dict__.get("__call__"), target
    # Nothing to read (a built-in, C code), or code that tracing judges.
    if not isinstance(target, types.FunctionType) or _is_library(target):
        return False
    names = _Names(target, owner)

    def scan_callee(value: object) -> bool:
        return _scan(value, depth - 1, seen, scan)

    # Nested functions too: a closure that appends does so when it is called.
    return any(scan(names=names, scan_callee=scan_callee).matches(code) for code in _nested_code(target.__code__))


class _Names:
    """The values of a function's names that are bound outside of it: closure, defaults, globals."""

    def __init__(self, function: types.FunctionType, owner: object) -> None:
        code = function.__code__
        defaults = function.__defaults__ or ()
        parameters = code.co_varnames[: code.co_argcount]
        self.bound: dict[str, Any] = dict(zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True))
        self.bound.update(function.__kwdefaults__ or {})
        if owner is not _LOCAL and parameters:
            self.bound[parameters[0]] = owner
        self.free: dict[str, Any] = {}
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                self.free[name] = cell.cell_contents
            except ValueError:  # Not assigned yet.
                self.free[name] = _LOCAL
        self._globals = function.__globals__

    def value(self, name: str, is_global: bool) -> Any:
        if not is_global:
            return self.free.get(name, self.bound.get(name, _LOCAL))
        return self._globals.get(name, getattr(builtins, name, _LOCAL))


class _BytecodeScan:
    """An abstract interpretation of a function's bytecode, first instruction to last, that tracks external values.

    `scan_callee` returns whether a function that the code uses matches, too.
    """

    def __init__(self, names: _Names, scan_callee: Callable[[Any], bool]) -> None:
        self._names = names
        self._scan_callee = scan_callee
        self._stack: list[Any] = []
        self._locals: dict[str, Any] = dict(names.bound)

    def matches(self, code: types.CodeType) -> bool:
        """Returns whether the code matches the scan."""
        steps = list(dis.get_instructions(code))
        if any(step.opname not in KNOWN for step in steps):
            return self._matches_unread(code)
        return any(map(self._matches_step, steps))

    def _matches_unread(self, code: types.CodeType) -> bool:
        """Returns whether code matches that has an instruction of a newer Python: by its names, whatever it does."""
        values = [*self._names.free.values(), *self._names.bound.values()]
        values += [self._names.value(name, True) for name in code.co_names]
        attributes = [getattr(v, name, _LOCAL) for v in values if v is not _LOCAL for name in code.co_names]
        return any(map(self._matches_use, values + attributes))

    def _matches_step(self, step: dis.Instruction) -> bool:
        if self._matches_instruction(step):
            return True
        if step.opname in _ATTRIBUTES and self._matches_attribute(str(step.argval)):
            return True
        before = len(self._stack)
        self._step_stack(step)
        loaded = self._stack[before:] if step.opname in _LOADS or step.opname.startswith("LOAD_FAST") else []
        return any(self._matches_use(value) for value in loaded)

    def _matches_instruction(self, step: dis.Instruction) -> bool:
        """Returns whether the scan looks for this instruction."""
        return False

    def _matches_attribute(self, attribute: str) -> bool:
        owner = self._top()
        # A method of a local object changes nothing outside; an attribute of a module is a name.
        if owner is _LOCAL or isinstance(owner, types.ModuleType):
            value = getattr(owner, attribute, _LOCAL)
            return owner is not _LOCAL and self._matches_use(value)
        if self._matches_method(attribute):
            return True
        return owner is not _EXTERNAL and self._matches_use(getattr(owner, attribute, _LOCAL))

    def _matches_method(self, attribute: str) -> bool:
        """Returns whether the scan looks for methods of this name."""
        return False

    def _matches_use(self, value: object) -> bool:
        if value is _LOCAL or value is _EXTERNAL or isinstance(value, types.ModuleType):
            return False
        is_function = callable(value) and not isinstance(value, type)
        return self._matches_value(value) or (is_function and self._scan_callee(value))

    def _matches_value(self, value: object) -> bool:
        """Returns whether the scan looks for this value."""
        return False

    def _top(self, place: int = 1) -> Any:
        return self._stack[-place] if len(self._stack) >= place else _LOCAL

    def _step_stack(self, step: dis.Instruction) -> None:
        """Applies an instruction to the abstract stack."""
        name, stack = step.opname, self._stack
        effect = dis.stack_effect(step.opcode, step.arg if step.opcode >= dis.HAVE_ARGUMENT else None, jump=False)
        if name in _LOADS:
            # LOAD_GLOBAL may push a NULL before the function, for the call.
            null = [_LOCAL] * (effect - 1)
            stack += [*null, self._names.value(str(step.argval), name in ("LOAD_GLOBAL", "LOAD_NAME"))]
        elif name.startswith("LOAD_FAST"):
            names_loaded = step.argval if isinstance(step.argval, tuple) else (step.argval,)
            stack += [self._locals.get(n, _LOCAL) for n in names_loaded]
        elif name in _FAST_STORES:
            # In the order in which CPython pops them: from 3.13 on up to two at once, or one beside a load.
            names: list[str] = list(step.argval) if isinstance(step.argval, tuple) else [step.argval]
            for local in names[: _FAST_STORES[name]]:
                self._locals[local] = stack.pop() if stack else _LOCAL
            if name == "STORE_FAST_LOAD_FAST":
                stack.append(self._locals.get(names[1], _LOCAL))
        elif name == "COPY":
            stack.append(self._top(step.arg or 1))
        elif name == "SWAP" and len(stack) >= (step.arg or 1):
            stack[-1], stack[-(step.arg or 1)] = stack[-(step.arg or 1)], stack[-1]
        elif name in _ATTRIBUTES:
            owner = stack.pop() if stack else _LOCAL
            known = owner is not _LOCAL and owner is not _EXTERNAL
            stack += [getattr(owner, str(step.argval), _LOCAL) if known else owner] + [_LOCAL] * effect
        elif effect >= 0:
            stack += [_LOCAL] * effect
        else:
            container = self._top(2) if name in _SUBSCRIPTS else _LOCAL
            del stack[effect:]
            # An item of an external container is external; of an external array it is a number.
            if stack and container is not _LOCAL and not hasattr(container, "dtype"):
                stack[-1] = _EXTERNAL
            # Whatever else was computed is new.
            elif stack and name.startswith(_COMPUTING):
                stack[-1] = _LOCAL


class _EffectScan(_BytecodeScan):
    """A scan for side effects."""

    def _matches_unread(self, code: types.CodeType) -> bool:
        # They are assumed, which costs speed and never correctness.
        return True

    def _matches_instruction(self, step: dis.Instruction) -> bool:
        name = step.opname
        if name in _STORES or (name in ("STORE_DEREF", "DELETE_DEREF") and step.argval in self._names.free):
            return name not in ("STORE_ATTR", "DELETE_ATTR") or self._top() is not _LOCAL
        return name in _ITEM_STORES and self._top(_ITEM_STORES[name]) is not _LOCAL

    def _matches_method(self, attribute: str) -> bool:
        return attribute in _CHANGES

    def _matches_value(self, value: object) -> bool:
        return _is_iterator(value) or _is_nondeterministic(value) or id(value) in _FUNCTIONS


class _LoadScan(_BytecodeScan):
    """A scan for external values of a kind."""

    def __init__(self, wanted: Callable[[Any], bool], names: _Names, scan_callee: Callable[[Any], bool]) -> None:
        super().__init__(names, scan_callee)
        self._wanted = wanted

    def _matches_value(self, value: object) -> bool:
        return self._wanted(value)


def _is_iterator(value: object) -> bool:
    """Returns whether a value is an iterator, or a collection that has one."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else (value,)
    return any(isinstance(v, Iterator) for v in inner)


def _is_nondeterministic(value: object) -> bool:
    module = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    kind = type(value)
    owner = getattr(value, "__self__", None)
    homes = [module, kind.__module__ if kind.__module__ != "builtins" else None]
    homes += [type(owner).__module__] if owner is not None and not isinstance(owner, types.ModuleType) else []
    return any(isinstance(h, str) and any(h == u or h.startswith(u + ".") for u in _NONDETERMINISTIC) for h in homes)


def _is_library(function: types.FunctionType) -> bool:
    """Returns whether a function is of an installed package or of Python's own modules."""
    name = str(function.__globals__.get("__name__", ""))
    root = name.partition(".")[0]
    path = getattr(sys.modules.get(name), "__file__", None) or ""
    return root in ("lockstep", "jax", "keras", "numpy") or "site-packages" in path or root in sys.stdlib_module_names


def _nested_code(code: types.CodeType) -> Iterator[types.CodeType]:
    """Returns a function's code, and that of the functions it defines."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested_code(constant)
