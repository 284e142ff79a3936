"""The lowerings hold wherever a program may have its convolutions and its pooling."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from lockstep._engine.step import backends
from tests.cpu.lowerings.both import assert_same, differs, lowered, random

NUMBERS = ("NHWC", "HWIO", "NHWC")
X = random((4, 8, 8, 1), "float32", 0)
KERNELS = (random((3, 3, 1, 8), "float32", 1), random((1, 1, 8, 4), "float32", 2), random((3, 3, 4, 4), "float32", 3))


def loss(kernels: Any, x: Any) -> Any:
    """A network that meets every rule."""
    x = lax.conv_general_dilated(x, kernels[0], (1, 1), "VALID", dimension_numbers=NUMBERS)
    x = lax.reduce_window(jnp.tanh(x), -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = lax.conv_general_dilated(x, kernels[1], (1, 1), "SAME", dimension_numbers=NUMBERS)
    x = lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    x = lax.conv_general_dilated(x, kernels[2], (1, 1), "SAME", dimension_numbers=NUMBERS)
    return (x**2).mean()


GRADIENT = jax.value_and_grad(loss, (0, 1))


def _scan(kernels: Any, x: Any) -> Any:
    def step(kernels: Any, _: None) -> Any:
        value, (gradient, _) = GRADIENT(kernels, x)
        return jax.tree.map(lambda k, g: k - 0.01 * g, kernels, gradient), value

    return lax.scan(step, kernels, None, length=3)


def _while(kernels: Any, x: Any) -> Any:
    def step(carry: Any) -> Any:
        count, kernels = carry
        return count + 1, jax.tree.map(lambda k, g: k - 0.01 * g, kernels, GRADIENT(kernels, x)[1][0])

    return lax.while_loop(lambda carry: carry[0] < 3, step, (0, kernels))


TRANSFORMED: dict[str, Callable[..., Any]] = {
    "grad": GRADIENT,
    "scan": _scan,
    "while": _while,
    "cond": lambda k, x: lax.cond(x.sum() < 1e9, GRADIENT, lambda k, x: (0.0, (k, x)), k, x),
    "vmap": lambda k, x: jax.vmap(GRADIENT, (None, 0))(k, x[:, None]),
    "vmap of kernels": lambda k, x: jax.vmap(GRADIENT, (0, None))(jax.tree.map(lambda a: jnp.stack([a, -a]), k), x),
    "remat": jax.value_and_grad(jax.checkpoint(loss), (0, 1)),
    "jvp": lambda k, x: jax.jvp(loss, (k, x), (k, x)),
    "second derivative": lambda k, x: jax.grad(lambda x: (jax.grad(loss, 1)(k, x) ** 2).sum())(x),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSFORMED)
def test_under(name: str) -> None:
    assert_same(TRANSFORMED[name], KERNELS, X)


def _mesh(kind: AxisType) -> jax.sharding.Mesh:
    return jax.make_mesh((2,), ("replica",), axis_types=(kind,), devices=jax.local_devices()[:2])


@pytest.mark.slow
@pytest.mark.parametrize("check_vma", [False, True])
def test_under_shard_map(check_vma: bool) -> None:
    def replica(kernels: Any, x: Any) -> Any:
        value, (gradient, _) = GRADIENT(kernels, x)
        return lax.pmean((value, gradient), "replica") if not check_vma else (lax.pmean(value, "replica"), gradient)

    spec = PartitionSpec("replica")
    mesh = _mesh(AxisType.Auto)
    mapped = jax.shard_map(
        replica, mesh=mesh, in_specs=(PartitionSpec(), spec), out_specs=PartitionSpec(), check_vma=check_vma
    )
    assert_same(mapped, KERNELS, X)


def test_gradients_of_kernels_are_taken_inside_of_shard_map() -> None:
    """There, differentiation says of a kernel's gradient that it lies nowhere in particular."""

    def total(kernel: Any, x: Any) -> Any:
        return lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=NUMBERS).sum()

    whole, mesh = PartitionSpec(), _mesh(AxisType.Auto)
    mapped = jax.shard_map(jax.grad(total), mesh=mesh, in_specs=whole, out_specs=whole, check_vma=False)
    assert differs(mapped, KERNELS[0], X)


@pytest.mark.slow
def test_when_xla_divides_the_batch() -> None:
    mesh = _mesh(AxisType.Auto)

    def divided(kernels: Any, x: Any) -> Any:
        return GRADIENT(kernels, lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec("replica"))))

    assert_same(divided, KERNELS, X[:3])


def test_operands_whose_types_are_sharded_go_jaxs_way() -> None:
    mesh = _mesh(AxisType.Explicit)
    with jax.set_mesh(mesh):
        x = jax.device_put(X, NamedSharding(mesh, PartitionSpec("replica")))
        kernel = jax.device_put(KERNELS[0], NamedSharding(mesh, PartitionSpec()))

        def f(k: Any, x: Any) -> Any:
            return lax.conv_general_dilated(x, k, (1, 1), "VALID", dimension_numbers=NUMBERS)

        assert not differs(f, kernel, x)


@pytest.mark.slow
def test_other_platforms_get_what_they_always_got() -> None:
    own = jax.jit(GRADIENT).lower(KERNELS, X).as_text()
    assert _text("gpu") == _text("tpu") == own != _text("cpu")


def _text(platform: str) -> str:
    return jax.jit(backends.apply_passes(platform, GRADIENT)).lower(KERNELS, X).as_text()


LOAD = """
import sys, jax.export, numpy as np
exported = jax.export.deserialize(bytearray(open(sys.argv[1], "rb").read()))
np.savez(sys.argv[2], *jax.tree.leaves(exported.call(*map(np.asarray, np.load(sys.argv[3]).values()))))
assert "lockstep" not in sys.modules
"""


@pytest.mark.slow
def test_an_exported_program_runs_without_lockstep(tmp_path: Any) -> None:
    kernel = KERNELS[0]
    f = jax.jit(backends.apply_passes("cpu", jax.grad(lambda k, x: loss((k, *KERNELS[1:]), x))))
    (tmp_path / "program").write_bytes(jax.export.export(f)(kernel, X).serialize())
    np.savez(tmp_path / "operands.npz", kernel, X)
    paths = [str(tmp_path / name) for name in ("program", "results.npz", "operands.npz")]
    subprocess.run([sys.executable, "-c", LOAD, *paths], check=True, timeout=120)
    np.testing.assert_allclose(np.load(tmp_path / "results.npz")["arr_0"], f(kernel, X), rtol=1e-5, atol=1e-7)


def test_shapes_that_an_export_leaves_open() -> None:
    (rows,) = jax.export.symbolic_shape("rows")
    open_shape = jax.ShapeDtypeStruct((rows, *X.shape[1:]), X.dtype)
    exported = jax.export.export(jax.jit(backends.apply_passes("cpu", loss)))(KERNELS, open_shape)
    np.testing.assert_allclose(
        exported.call(KERNELS, X), lowered(loss, KERNELS, X, ours=True).compile()(KERNELS, X), rtol=1e-5
    )
