"""Config fingerprints: values that must be equal on all tasks, and the first difference between them."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Any

_ABSENT = object()
_MAX_SHOWN = 200


def installed_versions() -> dict[str, str]:
    """Returns the versions that change what a step computes: of Python (major.minor) and of packages."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for package in ("lockstep", "jax", "jaxlib", "keras", "numpy"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed as a package"
    return found


def first_difference(values: Sequence[Any], tasks: Sequence[str]) -> str | None:
    """Describes where the values differ, or returns `None` if they are all equal.

    The value that most tasks have counts as right (the first task's, if there is no majority).
    """
    texts = [json.dumps(v, sort_keys=True) for v in values]
    values = [json.loads(t) for t in texts]  # As those that came from other tasks: text for keys, lists for tuples.
    if len(set(texts)) == 1:
        return None
    counts = Counter(texts)
    # The first of those that are equally frequent, which is the chief's where there is a tie of all.
    usual = max(texts, key=lambda t: counts[t])
    odd = [i for i, t in enumerate(texts) if t != usual]
    reference = texts.index(usual)
    path, expected, received = next(_differences(values[reference], values[odd[0]], ""))
    odd_names = ", ".join(tasks[i] for i in odd)
    return f"{odd_names}: {path or 'value'} is {_show(received)}, but {_show(expected)} on {tasks[reference]}"


def _differences(a: Any, b: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in [*a, *(k for k in b if k not in a)]:
            inner = f"{path}[{key!r}]" if path else str(key)
            yield from _differences(a.get(key, _ABSENT), b.get(key, _ABSENT), inner)
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from _differences(x, y, f"{path}[{i}]")
    # As text: 1 and True, and 1 and 1.0, are equal to Python and not the same setting.
    elif _ABSENT in (a, b) or json.dumps(a, sort_keys=True) != json.dumps(b, sort_keys=True):
        yield path, a, b


def _show(value: Any) -> str:
    text = "absent" if value is _ABSENT else "None" if value is None else json.dumps(value)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."
