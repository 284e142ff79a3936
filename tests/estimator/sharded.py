"""Estimators whose replicas divide optimizers' state, run on any layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lockstep.errors import UnsupportedError
from lockstep.estimator._state import VariableState
from tests.engine.keras.sharded_cases import dividing
from tests.estimator import cases


def run(strategy: Any, case: str, floatx: str, model_dir: str) -> dict[str, np.ndarray]:
    """Trains a case; also returns which part of what is divided lies on one device."""
    parts: list[float] = []

    def noting(self: VariableState, state: Any) -> None:
        keys = sorted(key for key, number in self._numbers.items() if number in self.sharded)
        divided = [state[key] for key in keys]
        parts.append(sum(a.addressable_shards[0].data.nbytes for a in divided) / sum(a.nbytes for a in divided))
        if self.is_sharded:
            with pytest.raises(UnsupportedError, match="asked for or set by a hook"):
                self.value(keys[0])
        self._values = state

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(VariableState, "give", noting)
        found = cases.run(dividing(strategy), case, floatx, model_dir)
    return found | {"part": np.asarray(max(parts))}
