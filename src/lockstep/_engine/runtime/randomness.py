"""Global random state that user programs draw from: Python's and numpy's generators.

Keras seeds its initializers, seed generators and shuffles from them. Tasks that start from one state create the same
weights and shuffle data alike, as one process would, whether the program sets a seed or not.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_Get = Callable[[], np.random.RandomState | None]
_Set = Callable[[np.random.RandomState | None], None]
_more: dict[str, tuple[_Get, _Set]] = {}


def include(name: str, get: _Get, set: _Set) -> None:
    """Makes a generator of the process part of the global random state; `None` stands for one that is not there yet."""
    _more[name] = get, set


def snapshot() -> dict[str, Any]:
    """Returns the global random state as plain JSON values."""
    version, words, gauss = random.getstate()
    more = {name: _numpy_state(found) for name, (get, _) in _more.items() if (found := get()) is not None}
    return {
        "python": [version, _text(words), gauss],
        "numpy": _numpy_state(np.random),
        **({"more": more} if more else {}),
    }


def _numpy_state(generator: Any) -> list[Any]:
    name, keys, position, has_gauss, cached = generator.get_state(legacy=True)
    return [str(name), _text(keys), int(position), int(has_gauss), float(cached)]


def restore(state: dict[str, Any]) -> None:
    """Makes `state`, from `snapshot`, the global random state of this process."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(_words(words).tolist()), gauss))
    _set_numpy_state(np.random, state["numpy"])
    for name, (_, set_generator) in _more.items():
        saved = state.get("more", {}).get(name)
        generator = None if saved is None else np.random.RandomState(0)
        if generator is not None:
            _set_numpy_state(generator, saved)
        set_generator(generator)


def _set_numpy_state(generator: Any, saved: Any) -> None:
    name, keys, position, has_gauss, cached = saved
    generator.set_state((name, _words(keys), position, has_gauss, cached))


def random_states(seed: int) -> dict[str, Any]:
    """Returns the random state that `random.seed` and `numpy.random.seed` make, without changing this process'."""
    before = snapshot()
    try:
        random.seed(seed)
        np.random.seed(seed % 2**32)  # It takes no more than 32 bits.
        return snapshot()
    finally:
        restore(before)


def _text(words: ArrayLike) -> str:
    # Checkpoints are taken between steps, and 600 numbers are slow as JSON.
    return base64.b64encode(np.asarray(words, "<u4").tobytes()).decode("ascii")


def _words(saved: Any) -> NDArray[np.uint32]:
    # Checkpoints of earlier versions have the numbers themselves.
    words = np.frombuffer(base64.b64decode(saved), "<u4") if isinstance(saved, str) else np.asarray(saved)
    return words.astype(np.uint32)
