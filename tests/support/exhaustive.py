"""Cases of which a few are always run, and the rest with `--exhaustive`, or as slow tests."""

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
    return _mark(cases, is_always, pytest.mark.exhaustive)


def slow_but(cases: Iterable[Any], *quick: Any) -> list[Any]:
    """Returns cases as `always`, of which all but the `quick` ones, which show the same sooner, are slow tests."""
    return _mark(cases, quick.__contains__, pytest.mark.slow)


def _mark(cases: Iterable[Any], is_plain: Callable[[Any], bool], mark: pytest.MarkDecorator) -> list[Any]:
    return [
        case if is_plain(case) else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=mark)
        for case in cases
    ]
