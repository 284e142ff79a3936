"""oneDNN's shared library: where it is, and its functions in C."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from lockstep._cpu import targets
from lockstep._engine.runtime import environment

_log = logging.getLogger(__name__)

VARIABLE = "LOCKSTEP_ONEDNN"
# Its build on GNU OpenMP, which needs nothing but libgomp.
PACKAGE, _FILE, _MAJOR = "onednn-cpu-gomp", "libdnnl.so.3", 3
# Numbers of oneDNN's enumerations that are used, from dnnl_types.h and dnnl_common_types.h; version 3 keeps them.
_ANY_FORMAT = 1
FORWARD_TRAINING, DIRECT = 64, 1
_CPU, _IN_ORDER, _USER_SCRATCHPAD = 1, 1, 1
_MOST_DIMENSIONS = 12
# Of what a primitive takes.
SOURCE, DESTINATION, WEIGHTS, BIAS, SCRATCHPAD, MULTIPLE_SOURCES = 1, 17, 33, 41, 80, 1024
SOURCE_GRADIENT, DESTINATION_GRADIENT, WEIGHTS_GRADIENT, BIAS_GRADIENT = 129, 145, 161, 169
# Of what a primitive's description tells.
SOURCE_QUERY, WEIGHTS_QUERY, WEIGHTS_GRADIENT_QUERY = 129, 131, 132
DESTINATION_GRADIENT_QUERY, SCRATCHPAD_QUERY = 134, 136
_AVX512 = 0x27
# x * max(0, min(1, a * x)), with the largest a: a relu that leaves NaN as it is. oneDNN's own makes zero of it.
_HARD_SWISH, _LARGEST = 0x34, 3.4028234663852886e38

Handle = ctypes.c_void_p


class Dtype(NamedTuple):
    """A type of arrays: oneDNN's number, bytes of an element, and the instructions that fast kernels need, as bits."""

    number: int
    item_size: int
    instructions: int


# With AVX2, and with AVX-512's for bfloat16.
DTYPES = {"bfloat16": Dtype(2, 2, 0xE7), "float32": Dtype(3, 4, 0x7)}


class Library:
    """oneDNN's functions, for its engine of CPUs.

    Args:
        path: Of the shared library.

    Raises:
        OSError: If it cannot be loaded.
        AttributeError: If it lacks a function.
        RuntimeError: If it is of another major version, or refuses a call.
    """

    def __init__(self, path: str) -> None:
        self._functions = ctypes.CDLL(path)
        # What returns at once keeps the interpreter lock: other threads would hold it for a switch interval each time.
        quick = ctypes.PyDLL(path)
        # Of the OpenMP library that it was loaded with.
        self._most_threads, self._set_threads = quick.omp_get_max_threads, quick.omp_set_num_threads
        self._place, self._execute = quick.dnnl_memory_set_data_handle, self._functions.dnnl_primitive_execute
        self._place.argtypes = (Handle, Handle)
        self._wait = self._functions.dnnl_stream_wait
        self._functions.dnnl_version.restype = ctypes.POINTER(ctypes.c_int * 3)
        self._functions.dnnl_primitive_desc_query_md.restype = Handle
        self._functions.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
        self.version = ".".join(map(str, self._functions.dnnl_version().contents))
        if self.version.partition(".")[0] != str(_MAJOR):
            raise RuntimeError(f"oneDNN must be of version {_MAJOR}. Received: {self.version} in {path}.")
        # The processor's instructions, as bits.
        self._instructions = int(self._functions.dnnl_get_effective_cpu_isa())
        self._engine = self.create("engine_create", _CPU, ctypes.c_size_t(0))
        # Who executes a primitive gives it its memory: that of the library belongs to the thread that made it.
        self._attributes = self.create("primitive_attr_create")
        self._call("primitive_attr_set_scratchpad_mode", self._attributes, _USER_SCRATCHPAD)
        self._with_relu = self.create("primitive_attr_clone", self._attributes)
        relu = self.create("post_ops_create")
        self._call("post_ops_append_eltwise", relu, _HARD_SWISH, ctypes.c_float(_LARGEST), ctypes.c_float(0))
        self._call("primitive_attr_set_post_ops", self._with_relu, relu)

    def computes(self, dtype: str) -> bool:
        """Returns whether the processor has instructions for a type; without them oneDNN's kernels are naive."""
        known = DTYPES.get(dtype)
        return known is not None and self._instructions & known.instructions == known.instructions

    @property
    def has_avx512(self) -> bool:
        """True if kernels use AVX-512."""
        return self._instructions & _AVX512 == _AVX512

    def create(self, name: str, *arguments: Any) -> Handle:
        """Returns what the function `dnnl_<name>` makes of its arguments; it is kept as long as the process lives."""
        made = Handle()
        self._call(name, ctypes.byref(made), *arguments)
        return made

    def describe(self, dtype: str, shape: Sequence[int], strides: Sequence[int] | None) -> Handle:
        """Returns the description of an array of one of `DTYPES`; without strides it lies as suits a primitive best."""
        array = len(shape), _sizes(shape), DTYPES[dtype].number
        if strides is None:
            return self.create("memory_desc_create_with_tag", *array, _ANY_FORMAT)
        return self.create("memory_desc_create_with_strides", *array, _sizes(strides))

    def describe_convolution(self, name: str, *arguments: Any, has_relu: bool = False) -> Handle:
        """Returns the description of a convolution's primitive; sequences are sizes."""
        given = [_sizes(a) if isinstance(a, tuple) else a for a in arguments]
        attributes = self._with_relu if has_relu else self._attributes
        return self.create(f"convolution_{name}_primitive_desc_create", self._engine, *given, attributes)

    def describe_product(self, first: Handle, second: Handle, result: Handle) -> Handle:
        """Returns the description of the primitive of a product of matrices."""
        arrays = first, second, None, result
        return self.create("matmul_primitive_desc_create", self._engine, *arrays, self._attributes)

    def describe_sum(self, total: Handle, arrays: Sequence[Handle]) -> Handle:
        """Returns the description of the primitive of a sum of arrays."""
        count = len(arrays)
        ones, given = (ctypes.c_float * count)(*[1.0] * count), (Handle * count)(*arrays)
        return self.create("sum_primitive_desc_create", self._engine, total, count, ones, given, self._attributes)

    def describe_reorder(self, before: Handle, after: Handle) -> Handle:
        """Returns the description of a primitive that copies an array from one order in memory to another."""
        return self.create("reorder_primitive_desc_create", before, self._engine, after, self._engine, self._attributes)

    def query(self, primitive: Handle, what: int) -> Handle:
        """Returns the description of an array that a primitive takes, from the primitive's description."""
        return Handle(self._functions.dnnl_primitive_desc_query_md(primitive, what, 0))

    def size(self, description: Handle) -> int:
        """Returns how many bytes an array needs."""
        return int(self._functions.dnnl_memory_desc_get_size(description)) if description else 0

    def are_equal(self, one: Handle, other: Handle) -> bool:
        """Returns whether two descriptions are of the same order in memory."""
        return bool(self._functions.dnnl_memory_desc_equal(one, other))

    def memory(self, description: Handle) -> Handle:
        """Returns an array whose place is not known yet."""
        return self.create("memory_create", description, self._engine, Handle(0))

    def stream(self) -> Handle:
        """Returns a stream, in which primitives are executed one after the other."""
        return self.create("stream_create", self._engine, _IN_ORDER)

    def place(self, memory: Handle, address: int) -> None:
        """Says where an array is."""
        self._check("memory_set_data_handle", self._place(memory, address))

    @contextmanager
    def threads(self, count: int) -> Generator[None]:
        """Has primitives that this thread makes or executes use so many threads of OpenMP's."""
        # The same for both, or a primitive's memory does not suffice. Other code of this thread keeps its own number.
        before = self._most_threads()
        self._set_threads(count)
        try:
            yield
        finally:
            self._set_threads(before)

    def execute(self, primitive: Handle, stream: Handle, arguments: Any) -> None:
        """Executes a primitive, and waits for its end."""
        self._check("primitive_execute", self._execute(primitive, stream, len(arguments), arguments))
        self._check("stream_wait", self._wait(stream))

    def _call(self, name: str, *arguments: Any) -> None:
        self._check(name, getattr(self._functions, f"dnnl_{name}")(*arguments))

    def _check(self, name: str, status: int) -> None:
        if status:
            raise RuntimeError(f"oneDNN's dnnl_{name} failed with status {status}; {VARIABLE}=0 does without oneDNN.")


class Argument(ctypes.Structure):
    """dnnl_exec_arg_t."""

    _fields_ = (("number", ctypes.c_int), ("memory", Handle))


@functools.cache
def load() -> Library | None:
    """Returns the library, loaded once; `None` if it is not installed, or cannot be loaded."""
    path = _find()
    if path is None or not targets.is_supported():
        return None
    try:
        return Library(path)
    except (OSError, AttributeError, RuntimeError) as error:
        _log.info("Convolutions are XLA's own: oneDNN is installed, but was not loaded: %s", error)
        return None


def is_enabled() -> bool:
    """Returns whether oneDNN is to be used, and there; raises `ArgumentError` for anything but 0, 1 and nothing."""
    return environment.env_flag(VARIABLE, "oneDNN computes convolutions where it is installed") and load() is not None


def computes(dtype: str) -> bool:
    """Returns whether oneDNN has fast kernels for a type on this processor."""
    dnnl = load()
    return dnnl is not None and dnnl.computes(dtype)


def has_avx512() -> bool:
    """Returns whether oneDNN uses AVX-512 on this processor."""
    dnnl = load()
    return dnnl is not None and dnnl.has_avx512


def _find() -> str | None:
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((str(file.locate()) for file in files if file.name == _FILE), None)


def _sizes(sizes: Sequence[int]) -> Any:
    return (ctypes.c_int64 * _MOST_DIMENSIONS)(*sizes)
