"""Cases of which a few are always run, and the rest with `--exhaustive`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def always(cases: Iterable[Any], is_always: Callable[[Any], bool]) -> list[Any]:
    """Returns cases as `pytest.mark.parametrize` takes them; tuples are several arguments.

    Args:
        cases: All of them.
        is_always: Whether a case runs without `--exhaustive`.
    """
    more = pytest.mark.exhaustive
    return [
        case if is_always(case) else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=more)
        for case in cases
    ]
