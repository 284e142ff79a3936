"""XLA's foreign function interface, as far as it is used, in ctypes: so no compiler is needed to be called by XLA.

Source: xla/ffi/api/c_api.h, installed with jaxlib (`jax.ffi.include_dir()`). It is a stable interface: fields are only
added at the ends, and a new major version says when that is not so. Futures came with version 0.3.
"""

from __future__ import annotations

import ctypes
from typing import Any

MAJOR, OLDEST_MINOR = 0, 3

# Numbers of the functions in `Api.functions`.
CREATE_ERROR, CREATE_FUTURE, SET_AVAILABLE, SET_ERROR = 0, 13, 14, 15
_FUNCTIONS = 16

ABORTED = 10
_METADATA = 1
# The version of the interface with which a target of this kind is registered.
TYPED = 1


class _Sized(ctypes.Structure):
    """The beginning of most structures: their size, by which XLA knows their version, and a chain of extensions."""

    _fields_ = (("struct_size", ctypes.c_size_t), ("extension", ctypes.c_void_p))


class Version(_Sized):
    """XLA_FFI_Api_Version."""

    _fields_ = (("major", ctypes.c_int), ("minor", ctypes.c_int))


class Api(_Sized):
    """XLA_FFI_Api."""

    _fields_ = (("version", Version), ("internal", ctypes.c_void_p), ("functions", ctypes.c_void_p * _FUNCTIONS))


class Items(_Sized):
    """XLA_FFI_Args, XLA_FFI_Rets."""

    _fields_ = (("size", ctypes.c_int64), ("types", ctypes.c_void_p), ("items", ctypes.POINTER(ctypes.c_void_p)))


class Attributes(_Sized):
    """XLA_FFI_Attrs: sorted by name."""

    _fields_ = (
        ("size", ctypes.c_int64),
        ("types", ctypes.c_void_p),
        ("names", ctypes.c_void_p),
        ("items", ctypes.POINTER(ctypes.c_void_p)),
    )


class Scalar(ctypes.Structure):
    """XLA_FFI_Scalar."""

    _fields_ = (("dtype", ctypes.c_int), ("value", ctypes.c_void_p))


class ByteSpan(ctypes.Structure):
    """XLA_FFI_ByteSpan: an attribute that is text."""

    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_size_t))


class Buffer(_Sized):
    """XLA_FFI_Buffer."""

    _fields_ = (
        ("dtype", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int64),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
    )


class Frame(_Sized):
    """XLA_FFI_CallFrame."""

    _fields_ = (
        ("api", ctypes.POINTER(Api)),
        ("context", ctypes.c_void_p),
        ("stage", ctypes.c_int),
        ("arguments", Items),
        ("results", Items),
        ("attributes", Attributes),
        ("future", ctypes.c_void_p),
    )


class _Metadata(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("version", Version),
        ("traits", ctypes.c_uint32),
        ("state_type", ctypes.c_int64),
    )


class _MetadataExtension(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("metadata", ctypes.POINTER(_Metadata)),
    )


class Created(_Sized):
    """XLA_FFI_Future_Create_Args, and XLA_FFI_Future_SetAvailable_Args."""

    _fields_ = (("future", ctypes.c_void_p),)


class Failed(_Sized):
    """XLA_FFI_Future_SetError_Args."""

    _fields_ = (("future", ctypes.c_void_p), ("error", ctypes.c_void_p))


class _Message(_Sized):
    _fields_ = (("message", ctypes.c_char_p), ("code", ctypes.c_int))


HANDLER = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
# What returns at once keeps the interpreter lock: to give it up and get it back can take as long as a switch interval.
_QUICK = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
# XLA may go on with its program inside of these.
_LONG = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


def capsule(handler: Any) -> Any:
    """Returns the capsule in which XLA takes a handler; as `jax.ffi.pycapsule`, without jax."""
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return make(handler, None, None)


def answer_metadata(frame: Frame) -> bool:
    """Answers XLA's question for the interface's version; returns whether the call was that question."""
    if not frame.extension:
        return False
    extension = _MetadataExtension.from_address(frame.extension)
    if extension.type != _METADATA:
        return False
    offered = frame.api.contents.version
    metadata = extension.metadata.contents
    # One that does not suit is refused by XLA, with both numbers, when a program is compiled.
    metadata.version.major, metadata.version.minor = MAJOR, max(OLDEST_MINOR, offered.minor)
    metadata.traits = 0
    return True


def create_future(api: Api) -> int:
    """Returns a future that XLA waits for instead of the end of the call."""
    created = Created(ctypes.sizeof(Created), None, None)
    _check(_QUICK(api.functions[CREATE_FUTURE])(ctypes.addressof(created)))
    return int(created.future)


def create_error(api: Api, text: str) -> int:
    """Returns an error of XLA's, which its receiver owns."""
    message = _Message(ctypes.sizeof(_Message), None, text.encode(), ABORTED)
    return int(_QUICK(api.functions[CREATE_ERROR])(ctypes.addressof(message)) or 0)


def set_available(api: Api, future: int) -> None:
    """Lets XLA go on, possibly inside of this call."""
    done = Created(ctypes.sizeof(Created), None, future)
    _check(_LONG(api.functions[SET_AVAILABLE])(ctypes.addressof(done)))


def set_error(api: Api, future: int, text: str) -> None:
    """Lets the program fail."""
    failed = Failed(ctypes.sizeof(Failed), None, future, create_error(api, text))
    _check(_LONG(api.functions[SET_ERROR])(ctypes.addressof(failed)))


def _check(error: Any) -> None:
    if error:
        raise RuntimeError("XLA's foreign function interface refused a call")
