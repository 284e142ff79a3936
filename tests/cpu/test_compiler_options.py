"""What a loop carries stays where it is, and is what it would be without."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from lockstep._cpu import backend
from lockstep._cpu.backend import VARIABLE

State = list[jax.Array]
Step = Callable[[State], State]
_WIDTH = 24


@pytest.fixture
def asks_again() -> Generator[None]:
    """What XLA knows is found out once in a process: before and after this test too."""
    backend._are_known.cache_clear()
    yield
    backend._are_known.cache_clear()


def test_kernels_are_not_copied_in_each_round() -> None:
    text = _compiled(_step_of_layers, backend.CpuBackend().compiler_options()).as_text()
    assert not re.search(rf"f32\[{_WIDTH},{_WIDTH}\]\S* copy\(", _body(text))


def test_it_is_one_of_what_the_setting_switches_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert backend.CpuBackend().compiler_options()
    monkeypatch.setenv(VARIABLE, "0")
    assert backend.CpuBackend().compiler_options() == {}


@pytest.mark.usefixtures("asks_again")
def test_an_xla_that_does_not_know_the_option_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_LOOP_OPTIONS", {"xla_cpu_no_such_option": True})
    assert backend.CpuBackend().compiler_options() == {}


@pytest.mark.slow
@given(
    moves=st.lists(
        st.tuples(st.sampled_from(["tanh", "swap", "shift", "tie", "momentum"]), st.integers(0, 3), st.integers(0, 3)),
        min_size=1,
        max_size=6,
    ),
    rounds=st.integers(0, 4),
)
def test_a_loop_comes_to_what_its_steps_come_to(moves: list[tuple[str, int, int]], rounds: int) -> None:
    """Also where values change places, are read after they are replaced, or are the same in two places."""
    step = _step_of_moves(moves)
    found = _compiled(step, backend.CpuBackend().compiler_options())(_state(), rounds)
    wanted = _state()
    for _ in range(rounds):
        wanted = step(wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def _state() -> State:
    random = np.random.default_rng(0)
    return [jnp.asarray(random.normal(size=(_WIDTH, _WIDTH)) / 5, jnp.float32) for _ in range(4)]


def _compiled(step: Step, options: dict[str, Any]) -> Any:
    def run(state: State, rounds: Any) -> State:
        return lax.fori_loop(0, rounds, lambda _, now: step(now), state)

    return jax.jit(run, compiler_options=options).lower(_state(), 1).compile()


def _step_of_layers(state: State) -> State:
    def loss(kernels: State) -> jax.Array:
        x = jnp.ones((8, _WIDTH))
        for kernel in kernels:
            x = jnp.tanh(x @ kernel)
        return (x**2).mean()

    return [kernel - 0.1 * gradient for kernel, gradient in zip(state, jax.grad(loss)(state), strict=True)]


def _step_of_moves(moves: list[tuple[str, int, int]]) -> Step:
    """Some of what training does to its state, in any order."""

    def step(state: State) -> State:
        now = list(state)
        for move, a, b in moves:
            if move == "tanh":
                now[a] = jnp.tanh(now[a] @ now[b])
            elif move == "swap":
                now[a], now[b] = now[b], now[a]
            elif move == "shift":  # The value of the round before, whatever the others have become.
                now[a] = state[b]
            elif move == "tie":
                now[a] = now[b] = (now[a] + now[b]) / 2
            else:
                now[a] = 0.9 * now[a] + 0.1 * state[b].T
        return now

    return step


def _body(text: str) -> str:
    """The computation that the loop repeats."""
    name = re.search(r"body=%?([\w.\-]+)", text)
    assert name is not None
    body = re.search(rf"^%?{re.escape(name[1])} \(.*?^}}", text, re.S | re.M)
    assert body is not None
    return body[0]
