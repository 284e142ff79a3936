"""Generators of random numbers with a state of their own: `tf.random.Generator`."""

from __future__ import annotations

import copy
import statistics
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from keras.src.random.seed_generator import draw_seed

from lockstep._types import Tensor
from lockstep.compat.tensorflow._dtypes import as_dtype, float32
from lockstep.compat.tensorflow._ops import dispatch, random_in_model
from lockstep.compat.tensorflow._ops.model_seeds import draw_key
from lockstep.compat.tensorflow._ops.named import is_of_replica, model_fn_scope
from lockstep.compat.tensorflow._ops.random import check_algorithm, check_limits, process_generator, to_floats
from lockstep.compat.tensorflow._tensor import as_host
from lockstep.compat.tensorflow._types import DTypeLike, ShapeLike
from lockstep.errors import ArgumentError

__all__ = ["Generator", "get_global_generator"]


class Generator:
    """A source of random numbers with a state of its own.

    Functions of `strategy.run`, and of models that Keras trains, are compiled: there the numbers are of a second
    sequence, of a seed that is a variable, and each replica has its own.

    Source: tf.random.Generator.
    """

    def __init__(self, seed: int | None = None) -> None:
        """Creates a generator of a seed; `None` takes a random one."""
        self._follow(np.random.default_rng(seed))

    def _follow(self, rng: np.random.Generator) -> None:
        self._rng = rng
        # Of a copy: no number of this sequence is used up. The second word counts draws.
        self._words = [int(copy.deepcopy(rng).integers(2**31)), 0]
        self._seeds: Any = None

    @classmethod
    def from_seed(cls, seed: int, alg: str | None = None) -> Generator:
        """Creates a generator of a seed; `alg` must be `None`."""
        check_algorithm("auto_select" if alg is None else alg)
        return cls(dispatch.to_static(seed))

    @classmethod
    def from_non_deterministic_state(cls, alg: str | None = None) -> Generator:
        """Creates a generator of a random seed; `alg` must be `None`."""
        check_algorithm("auto_select" if alg is None else alg)
        return cls()

    @classmethod
    def from_state(cls, state: Tensor, alg: str | None = None) -> Generator:
        """Creates a generator that goes on from the `state` of another; `alg` must be `None`."""
        check_algorithm("auto_select" if alg is None else alg)
        generator = cls()
        generator.reset(state)
        return generator

    @property
    def state(self) -> Any:
        """The state, uint64 (8,); not TensorFlow's, whose numbers differ, too."""
        state: Any = self._rng.bit_generator.state
        numbers = (state["state"]["state"], state["state"]["inc"])
        # numpy keeps half of a drawn number of 64 bits for the next one of 32.
        halves = [part for number in numbers for part in divmod(number, 2**64)]
        words = self._words if self._seeds is None else np.asarray(self._seeds.state.value).tolist()
        return as_host(np.array([*halves, state["has_uint32"], state["uinteger"], *words], np.uint64))

    def reset(self, state: Tensor) -> None:
        """Goes on from a `state`."""
        parts = [int(n) for n in np.asarray(state)]
        # Those of earlier versions have six.
        if len(parts) not in (6, 8):
            raise ArgumentError(f"A state has eight numbers, as Generator.state gives them. Received: {len(parts)}.")
        first, second = ((parts[i] << 64) + parts[i + 1] for i in (0, 2))
        self._rng.bit_generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": first, "inc": second},
            "has_uint32": parts[4],
            "uinteger": parts[5],
        }
        self._words = parts[6:] or self._words
        if self._seeds is not None:
            # Assigned, not replaced: compiled functions hold this very variable.
            self._seeds.state.assign(np.asarray(self._words, self._seeds.state.dtype))

    def skip(self, delta: int) -> Any:
        """Goes on as if so many numbers of 64 bits had been drawn; returns the state of before."""
        before = self.state
        bits: Any = self._rng.bit_generator
        bits.advance(dispatch.to_static(delta))
        return before

    def reset_from_seed(self, seed: int) -> None:
        """Begins anew, as a generator of this seed."""
        self.reset(Generator.from_seed(seed).state)

    def uniform(
        self,
        shape: ShapeLike,
        minval: Tensor = 0,
        maxval: Tensor = None,
        dtype: DTypeLike = float32,
        name: str | None = None,
    ) -> Tensor:
        """Draws uniformly, as `tf.random.uniform`."""
        if (key := self._key()) is not None:
            return random_in_model.uniform(key, shape, minval, maxval, dtype)
        kind = as_dtype(dtype)
        low, high = check_limits(minval, maxval, kind)
        if kind.is_integer:
            return as_host(np.asarray(self._drawing().integers(low, high, dispatch.to_shape(shape), kind.dtype)))
        return to_floats(low + self._drawing().random(dispatch.to_shape(shape)) * (high - low), kind)

    def normal(
        self,
        shape: ShapeLike,
        mean: Tensor = 0.0,
        stddev: Tensor = 1.0,
        dtype: DTypeLike = float32,
        name: str | None = None,
    ) -> Tensor:
        """Draws from normal distributions."""
        if (key := self._key()) is not None:
            return random_in_model.normal(key, shape, mean, stddev, dtype)
        return to_floats(self._drawing().normal(mean, stddev, dispatch.to_shape(shape)), dtype)

    def truncated_normal(
        self,
        shape: ShapeLike,
        mean: Tensor = 0.0,
        stddev: Tensor = 1.0,
        dtype: DTypeLike = float32,
        name: str | None = None,
    ) -> Tensor:
        """Draws from normal distributions, within two standard deviations of the mean."""
        if (key := self._key()) is not None:
            return random_in_model.truncated_normal(key, shape, mean, stddev, dtype)
        # By the quantiles of uniform numbers: each draw uses up as many numbers of the sequence.
        within = statistics.NormalDist().cdf(2.0)
        uniform = self._drawing().uniform(1 - within, within, dispatch.to_shape(shape))
        quantiles = np.vectorize(statistics.NormalDist().inv_cdf, otypes=[np.float64])(uniform)
        return to_floats(mean + stddev * quantiles, dtype)

    def uniform_full_int(self, shape: ShapeLike, dtype: DTypeLike = "uint64", name: str | None = None) -> Tensor:
        """Draws from all values of an integer type."""
        kind = as_dtype(dtype)
        if not kind.is_integer:
            raise ArgumentError(f"uniform_full_int draws integers. Received: dtype={dtype!r}. Use uniform for floats.")
        if (key := self._key()) is not None:
            return _bits(key, dispatch.to_shape(shape), dispatch.usable_dtype(dispatch.DEVICE, dtype))
        limits = np.iinfo(kind.dtype)
        sizes = dispatch.to_shape(shape)
        return as_host(np.asarray(self._drawing().integers(limits.min, limits.max, sizes, kind.dtype, endpoint=True)))

    def binomial(
        self, shape: ShapeLike, counts: Tensor, probs: Tensor, dtype: DTypeLike = "int32", name: str | None = None
    ) -> Tensor:
        """Draws how many of `counts` trials succeed, each with probability `probs`; `shape` ends with theirs."""
        if (key := self._key()) is not None:
            drawn = jax.random.binomial(key, jnp.asarray(counts, jnp.float32), probs, dispatch.to_shape(shape))
            return drawn.astype(dispatch.usable_dtype(dispatch.DEVICE, dtype))
        drawn = self._drawing().binomial(np.asarray(counts).astype(np.int64), probs, dispatch.to_shape(shape))
        return as_host(np.asarray(drawn).astype(as_dtype(dtype).dtype))

    def split(self, count: int = 1) -> list[Generator]:
        """Returns generators whose numbers are independent of each other's and of this one's."""
        children: list[Generator] = []
        for rng in self._drawing().spawn(count):
            child = Generator()
            child._follow(rng)
            children.append(child)
        return children

    def get_state(self) -> list[int]:
        """Returns the state as a checkpoint holds it."""
        return [int(number) for number in np.asarray(self.state)]

    def set_state(self, state: list[int]) -> None:
        """Goes on from a state of `get_state`."""
        self.reset(np.array(state, np.uint64))

    def make_seeds(self, count: int = 1) -> Any:
        """Returns seeds for the stateless functions, int32 of shape `[2, count]`."""
        if (key := self._key()) is not None:
            return jax.random.randint(key, (2, count), 0, np.iinfo(np.int32).max)
        return as_host(self._drawing().integers(0, 2**31, (2, count), np.int32))

    def _key(self) -> Any:
        """Returns a key of the second sequence in compiled code that keeps its state; else `None`."""
        if not dispatch.is_traced() or model_fn_scope() is not None:
            return None
        return draw_seed(self._variable()) if is_of_replica() else draw_key()

    def _variable(self) -> Any:
        if self._seeds is None:
            self._seeds = _seed_variable(self._words)
        return self._seeds

    def _drawing(self) -> np.random.Generator:
        process_generator()
        # The call above refuses to draw in a trace, where the number would be a constant.
        return self._rng


def get_global_generator() -> Generator:
    """Returns the generator that the functions without a seed draw from. Source: tf.random.get_global_generator."""
    # The very generator that the functions draw from: both share one sequence.
    return _GlobalGenerator()


class _GlobalGenerator(Generator):
    def __init__(self) -> None:
        super().__init__()
        # In compiled code its second sequence alone is there.
        if not dispatch.is_traced():
            self._rng = process_generator()

    def _variable(self) -> Any:
        return random_in_model.generator_of(None)


def _seed_variable(words: list[int]) -> Any:
    made = keras.random.SeedGenerator(words[0])
    if made.state._value is None:
        # It is made in a trace: Keras gives it its first value afterwards.
        made.state._initializer = lambda shape, dtype: jnp.asarray(words, dtype)
    else:
        made.state.assign(np.asarray(words, made.state.dtype))
    return made


def _bits(key: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    unsigned = np.dtype(f"u{dtype.itemsize}")
    return jax.lax.bitcast_convert_type(jax.random.bits(key, shape, unsigned), dtype)
