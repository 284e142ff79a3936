"""Files of arrays: zip files of numpy's own, without pickles.

numpy's files know numpy's own types only. Others, such as bfloat16, are kept as unsigned integers of the same bits;
what they mean stands beside, and programs take the bits.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import IO, Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._types import Array, DType
from lockstep.errors import ArgumentError

_Array = np.ndarray[Any, np.dtype[Any]]
# Types that numpy does not know are of kind "V" and one or two bytes: float8 and bfloat16.
_BITS = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16)}


def as_variables(variables: Mapping[str, Any]) -> dict[str, _Array]:
    """Returns variables as programs take them; raises `ArgumentError` if one is no array of numbers."""
    arrays = {name: np.asarray(value) for name, value in variables.items()}
    for name, array in arrays.items():
        if array.dtype.kind in "OSUMm" or "int4" in array.dtype.name or "int2" in array.dtype.name:
            raise ArgumentError(
                "A variable of an export is an array of numbers of whole bytes. Received: "
                f"{name!r} of type {array.dtype}. Keep text in a vocabulary or in a file of assets, and cast numbers "
                "of less than a byte."
            )
    # With 64 bits only where JAX is set to them: a program would narrow them anyway.
    return {n: a.astype(jax.dtypes.canonicalize_dtype(a.dtype), copy=False) for n, a in arrays.items()}


def stored_dtype(dtype: DType) -> np.dtype[Any]:
    """Returns the type in which values of a type are kept."""
    dtype = np.dtype(dtype)
    return _BITS[dtype.itemsize] if dtype.kind == "V" else dtype


def from_stored(stored: Array, dtype: str) -> Any:
    """Returns the values that stored ones mean, inside of a program."""
    return stored if stored.dtype.name == dtype else jax.lax.bitcast_convert_type(stored, jnp.dtype(dtype))


def write(file: IO[bytes], arrays: Mapping[str, _Array]) -> None:
    """Writes arrays, by name, for `numpy.load`."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                # A view keeps the shape of an array of no dimensions, which ascontiguousarray does not.
                bits = np.array(array, order="C", copy=None).view(stored_dtype(array.dtype))
                np.lib.format.write_array(member, bits, allow_pickle=False)


def read(data: bytes, looks: Mapping[str, tuple[tuple[int, ...], Any]]) -> dict[str, _Array]:
    """Reads arrays of the given shapes and types, by name; raises any exception about bytes that are something else."""
    # The arrays are views of `data`, and so cannot be changed.
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {info.filename: info for info in archive.infolist()}
        for name in members.keys() ^ {f"{name}.npy" for name in looks}:
            raise ValueError(f"{name} is there and not described, or described and not there")
        for info in members.values():
            if info.compress_type != zipfile.ZIP_STORED or info.file_size > len(data):
                raise ValueError(f"{info.filename} is longer than the file")
        # Parts may not share bytes either, by which a small file would hold as much as it likes.
        if (total := sum(info.file_size for info in members.values())) > len(data):
            raise ValueError(f"its {len(members)} parts have {total} bytes together, and the file {len(data)}")
        return {name: _values(name, archive.read(f"{name}.npy"), *look) for name, look in looks.items()}


def _values(name: str, data: bytes, shape: tuple[int, ...], dtype: DType) -> _Array:
    # What the header says is compared, before memory is taken for it: 100 bytes can announce an array of any size.
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    found = np.lib.format.read_array_header_1_0(stream) if version == (1, 0) else None
    if found != (shape, False, stored_dtype(dtype)):
        raise ValueError(f"{name} is {found}, which is not {np.dtype(dtype).name}{list(shape)} as described")
    return np.frombuffer(data, stored_dtype(dtype), offset=stream.tell()).reshape(shape)
