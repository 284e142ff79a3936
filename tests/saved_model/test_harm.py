"""Exports that were made to do harm."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax._src.export import _export
from jax._src.interpreters import mlir
from jaxlib.mlir import ir

from lockstep import saved_model
from lockstep.errors import ArgumentError, CheckpointError
from lockstep.saved_model import SignatureFunction, TensorInfo
from tests.checkpoint.support import other

PROGRAM = "programs/serving_default.jax"


def _write(directory: Path, function: Any, variables: dict[str, Any] | None = None) -> None:
    signature = SignatureFunction(function, {"x": TensorInfo((4, 4), "float32")})
    saved_model.write(directory, {"serving_default": signature}, variables or {"w": np.ones((4, 4), np.float32)})


def _replace(directory: Path, name: str, data: bytes) -> None:
    """Puts other bytes into a file, and their digest into the description."""
    (directory / name).write_bytes(data)
    path = directory / "saved_model.json"
    document = json.loads(path.read_text())
    document["files"][name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    path.write_text(json.dumps(document))


def _craft(directory: Path, operation: str) -> None:
    """Replaces the program of an export by one that calls `operation` on its input %x and gives %r."""
    _write(directory, lambda variables, inputs: {"y": inputs["x"] + variables["w"]})
    before = export.deserialize(bytearray((directory / PROGRAM).read_bytes()))
    matrix = "tensor<4x4xf32>"
    text = f"""
    module @harm attributes {{mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32}} {{
      func.func public @main(%platform: tensor<i32>, %w: {matrix}, %x: {matrix}) -> {matrix} {{
        %r = func.call @inner(%x) : ({matrix}) -> {matrix}
        return %r : {matrix}
      }}
      func.func private @inner(%x: {matrix}) -> {matrix} {{
        {operation}
        return %r : {matrix}
      }}
    }}"""
    with mlir.make_ir_context():
        program = _export._module_to_bytecode(ir.Module.parse(text))
    crafted = dataclasses.replace(before, mlir_module_serialized=program)
    _replace(directory, PROGRAM, bytes(crafted.serialize()))


OPERATIONS = {
    # The results are shorter than what LAPACK writes into them.
    "lapack_sgetrf_ffi": """
        %0:3 = stablehlo.custom_call @lapack_sgetrf_ffi(%x) {api_version = 4 : i32, mhlo.backend_config = {}}
          : (tensor<4x4xf32>) -> (tensor<1x1xf32>, tensor<1xi32>, tensor<i32>)
        %r = stablehlo.broadcast_in_dim %0#0, dims = [0, 1] : (tensor<1x1xf32>) -> tensor<4x4xf32>""",
    "xla_ffi_python_cpu_callback": """
        %r = stablehlo.custom_call @xla_ffi_python_cpu_callback(%x)
          {api_version = 4 : i32, mhlo.backend_config = {index = 7 : ui64}} : (tensor<4x4xf32>) -> tensor<4x4xf32>""",
    "no such name": """
        %r = "stablehlo.custom_call"(%x) {call_target_name = "no such name"} : (tensor<4x4xf32>) -> tensor<4x4xf32>""",
    "stablehlo.infeed": """
        %token = stablehlo.create_token : !stablehlo.token
        %0:2 = "stablehlo.infeed"(%token) {infeed_config = "", layout = [[0, 1]]}
          : (!stablehlo.token) -> (tensor<4x4xf32>, !stablehlo.token)
        %r = stablehlo.add %x, %0#0 : tensor<4x4xf32>""",
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_programs_reach_only_their_own_arrays(tmp_path: Path, name: str) -> None:
    _craft(tmp_path / "model", OPERATIONS[name])
    with pytest.raises(ArgumentError, match=f"{PROGRAM}, which holds .*{name}.*safe_mode=False"):
        saved_model.load(tmp_path / "model")


def test_linear_algebra_of_ones_own(tmp_path: Path) -> None:
    _write(tmp_path / "model", lambda variables, inputs: {"y": jnp.linalg.inv(inputs["x"] + variables["w"])})
    with pytest.raises(ArgumentError, match="lapack_sgetrf_ffi"):
        saved_model.load(tmp_path / "model")
    model = saved_model.load(tmp_path / "model", safe_mode=False)
    x = np.diag([1.0, 2, 3, 4]).astype(np.float32)
    np.testing.assert_allclose(model(x=x)["y"], np.linalg.inv(x + 1), atol=1e-5)


def test_members_that_share_bytes(tmp_path: Path) -> None:
    """Each part of the file of variables fits into it; all together have forty times its bytes."""
    values = {f"w{i}": np.ones(10_000, np.float32) for i in range(40)}
    _write(tmp_path / "model", lambda variables, inputs: {"y": inputs["x"]}, values)
    member = io.BytesIO()
    np.lib.format.write_array(member, values["w0"])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("w00.npy", member.getvalue())
        end = buffer.tell()
    local, directory = buffer.getvalue()[:end], buffer.getvalue()[end:-22]
    # Entries of a directory of members that all begin at the same byte; Python compares names there, so each has one.
    entries = b"".join(directory.replace(b"w00", f"w{i:02}".encode()) for i in range(40))
    tail = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 40, 40, len(entries), len(local), 0)
    _replace(tmp_path / "model", "variables.npz", local + entries + tail)
    document = json.loads((tmp_path / "model" / "saved_model.json").read_text())
    document["variables"] = {f"w{i:02}": {"shape": [10_000], "dtype": "float32"} for i in range(40)}
    (tmp_path / "model" / "saved_model.json").write_text(json.dumps(document))
    with pytest.raises(ArgumentError, match=r"its 40 parts have 1605120 bytes together, and the file \d+"):
        saved_model.load(tmp_path / "model")


# Files of more than 10 kB cannot be written; Python turns the signal into an error.
FULL = """
import resource, sys, numpy
from lockstep import saved_model
from lockstep.errors import CheckpointError
from tests.saved_model.models import MLP, mlp_variables
variables = {**mlp_variables(), "large": numpy.ones(10_000)}
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
for write, path in ((saved_model.write, sys.argv[1] + "/mine"), (saved_model.write_version, sys.argv[1] + "/all")):
    try:
        write(path, {"serving_default": MLP}, variables)
    except CheckpointError as error:
        print(error)
"""


@pytest.mark.slow
def test_disk_full(tmp_path: Path) -> None:
    with other(FULL, tmp_path) as writer:
        for path in (f"{tmp_path}/mine", f"An export in {tmp_path}/all"):
            said = writer.hear()
            assert said.startswith(f"{path} could not be written: [Errno 27] File too large. What was saved before")
        assert writer.finish() == []
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
    assert issubclass(CheckpointError, RuntimeError)
