"""Random numbers: jax's bits, drawn in one piece."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from tests.cpu.lowerings.both import assert_same, differs, lowered

KEY = jax.random.key_data(jax.random.key(7))


def wrapped(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of a key's words."""
    return lambda data: draw(jax.random.wrap_key_data(data))


DRAWS: dict[str, Callable[..., Any]] = {
    "bits": lambda key: jax.random.bits(key, (3, 5)),
    "bits of 8": lambda key: jax.random.bits(key, (3, 5), "uint8"),
    "bits of 16": lambda key: jax.random.bits(key, (7,), "uint16"),
    "bernoulli": lambda key: jax.random.bernoulli(key, 0.9, (4, 6)),
    "bernoulli of each": lambda key: jax.random.bernoulli(key, jnp.linspace(0, 1, 6), (4, 6)),
    "uniform": lambda key: jax.random.uniform(key, (4, 6), minval=-2.0, maxval=3.0),
    "uniform, bfloat16": lambda key: jax.random.uniform(key, (4, 6), "bfloat16"),
    "normal": lambda key: jax.random.normal(key, (5, 3)),
    "truncated normal": lambda key: jax.random.truncated_normal(key, -1, 2, (5, 3)),
    "gumbel": lambda key: jax.random.gumbel(key, (5, 3)),
    "integers": lambda key: jax.random.randint(key, (5, 3), -4, 90),
    "permutation": lambda key: jax.random.permutation(key, 12),
    "categorical": lambda key: jax.random.categorical(key, jnp.ones((4, 3))),
    "one": jax.random.bits,
    "split": lambda key: jax.random.key_data(jax.random.split(jax.random.fold_in(key, 3), 4)),
    "of many keys": lambda key: jax.vmap(lambda k: jax.random.normal(k, (2, 3)))(jax.random.split(key, (4,))),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWS)
def test_numbers_are_those_of_jax(name: str) -> None:
    assert_same(wrapped(DRAWS[name]), KEY, exact=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bits", "bits of 8", "bernoulli", "of many keys"])
def test_numbers_are_those_of_jax_where_sharding_changes_them(name: str) -> None:
    with jax.threefry_partitionable(False):
        assert_same(wrapped(DRAWS[name]), KEY, exact=True)


@pytest.mark.slow
def test_bits_of_64() -> None:
    with jax.enable_x64(True):
        assert_same(wrapped(lambda key: jax.random.bits(key, (5, 3), "uint64")), KEY, exact=True)
        assert_same(wrapped(lambda key: jax.random.uniform(key, (5, 3), "float64")), KEY, exact=True)


@pytest.mark.slow
@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.lists(st.integers(0, 5), max_size=4))
def test_any_key_and_shape(first: int, second: int, shape: list[int]) -> None:
    key = np.array([first, second], "uint32")
    assert_same(wrapped(lambda key: jax.random.bits(key, shape)), key, exact=True)


@pytest.mark.slow
def test_a_mask_is_one_loop_and_drawn_once() -> None:
    def forward_and_back(data: Any, x: Any, g: Any) -> Any:
        mask = jax.random.bernoulli(jax.random.wrap_key_data(data), 0.9, x.shape)
        y = jnp.tanh(jnp.where(mask, x, 0.0))
        return y, jnp.where(mask, g, 0.0) * (1 - y * y)

    x = np.ones((64, 32), "float32")
    assert_same(forward_and_back, KEY, x, x)
    own, ours = (lowered(forward_and_back, KEY, x, x, ours=ours).compile().as_text() for ours in (False, True))
    assert "while(" in own and "while(" not in ours
    # Rounds of the hash: each shifts to the left once.
    assert ours.count(" shift-left(") == 20


def test_other_generators_are_left_alone() -> None:
    key = jax.random.key_data(jax.random.key(7, impl="rbg"))

    def draw(data: Any) -> Any:
        return jax.random.uniform(jax.random.wrap_key_data(data, impl="rbg"), (3, 4))

    assert not differs(draw, key)


def test_keys_keep_their_generator_whatever_the_default_is() -> None:
    with jax.default_prng_impl("rbg"):
        draw = lambda data: jax.random.normal(jax.random.wrap_key_data(data, impl="threefry2x32"), (3, 4))  # noqa: E731
        assert_same(draw, KEY, exact=True)
        assert differs(draw, KEY)


@pytest.mark.slow
def test_a_function_that_does_more_than_to_draw_stays_a_function() -> None:
    @jax.jit
    def noisy_sum(key: Any) -> Any:
        return jax.random.normal(key, (4, 6)).sum()

    assert "noisy_sum" in lowered(wrapped(noisy_sum), KEY, ours=True).as_text()
    assert_same(wrapped(noisy_sum), KEY)


@pytest.mark.slow
def test_a_function_that_says_how_it_is_divided_stays_a_function() -> None:
    mesh = jax.make_mesh((2,), ("replica",), axis_types=(AxisType.Auto,), devices=jax.local_devices()[:2])

    @functools.partial(jax.jit, out_shardings=NamedSharding(mesh, PartitionSpec("replica")))
    def divided_draw(key: Any) -> Any:
        return jax.random.bernoulli(key, 0.5, (8, 6))

    assert "divided_draw" in lowered(wrapped(divided_draw), KEY, ours=True).as_text()
    assert_same(wrapped(divided_draw), KEY, exact=True)


@pytest.mark.slow
def test_when_xla_divides_the_batch() -> None:
    mesh = jax.make_mesh((2,), ("replica",), axis_types=(AxisType.Auto,), devices=jax.local_devices()[:2])
    sharding = NamedSharding(mesh, PartitionSpec("replica"))

    def draw(data: Any) -> Any:
        mask = jax.random.bernoulli(jax.random.wrap_key_data(data), 0.5, (8, 6))
        return jax.lax.with_sharding_constraint(mask, sharding)

    assert_same(draw, KEY, exact=True)
