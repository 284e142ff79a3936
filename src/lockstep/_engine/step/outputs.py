"""What the steps of one dispatch hand out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np


@dataclass(frozen=True)
class Outputs:
    """The outputs of the steps of one dispatch, still on the devices.

    Attributes:
        value: Those of the last step; or those of all steps, stacked, if `places` is not `None`.
        places: Where in the stack the steps of the dispatch are.
        local: Makes arrays of this process of them.
    """

    value: Any
    places: range | None
    local: Callable[[Any], Any]

    @property
    def all(self) -> Any:
        """What there is: arrays of the last step, or of all steps with zeros at places that are not theirs."""
        return self.local(self.value)

    @property
    def last(self) -> Any:
        """The outputs of the last step: a pytree of arrays of this process."""
        found = self.all
        places = self.places
        return found if places is None else jax.tree.map(lambda a: a[places[-1]], found)

    def each(self) -> list[Any]:
        """The outputs of each step; of the last one alone, unless all are kept."""
        places = self.places
        if places is None:
            return [self.all]
        stack = jax.tree.map(np.asarray, self.all)
        return [jax.tree.map(lambda a: a[place], stack) for place in places]  # noqa: B023
