"""CartPole, as programs of reinforcement learning ask `gym` for it."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np

wrappers = SimpleNamespace()


class _CartPole:
    """A pole on a cart (Barto, Sutton and Anderson 1983), with gym 0.26's methods."""

    def __init__(self) -> None:
        self._draw = np.random.default_rng(0)
        self._state = np.zeros(4)
        self._steps = 0
        self.action_space = SimpleNamespace(
            n=2, sample=lambda: int(self._draw.integers(2)), seed=lambda seed=None: None
        )
        self.observation_space = SimpleNamespace(shape=(4,))

    def reset(self, seed: int | None = None, **_: Any) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._draw = np.random.default_rng(seed)
        self._state, self._steps = self._draw.uniform(-0.05, 0.05, 4), 0
        return self._state.astype("float32"), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        x, speed, angle, turn = self._state
        force = 10.0 if int(action) == 1 else -10.0
        pushed = (force + 0.05 * turn**2 * math.sin(angle)) / 1.1
        cos = math.cos(angle)
        turning = (9.8 * math.sin(angle) - cos * pushed) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        moving = pushed - 0.05 * turning * cos / 1.1
        self._state = self._state + 0.02 * np.array([speed, moving, turn, turning])
        self._steps += 1
        x, _, angle, _ = self._state
        return self._state.astype("float32"), 1.0, bool(abs(x) > 2.4 or abs(angle) > 0.209), self._steps >= 200, {}

    def render(self) -> Any:
        return np.zeros((40, 60, 3), "uint8")

    def seed(self, seed: int | None = None) -> None:
        self._draw = np.random.default_rng(seed)

    def close(self) -> None:
        pass


def make(name: str, **_: Any) -> _CartPole:
    """Returns CartPole, whatever its version."""
    assert name.startswith("CartPole"), name
    return _CartPole()
