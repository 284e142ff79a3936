"""Slurm's abbreviations, written out: "node[1-3,7],other" for hosts, "2(x3),1" for numbers of tasks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import chain, islice, product, repeat
from typing import TypeVar

from ._environ import check_set
from ._field import Field
from ._task import MOST_TASKS

_T = TypeVar("_T")

_HOSTS_EXAMPLE = "node[1-3,7],other"
_COUNTS_EXAMPLE = "2(x3),1"
# One item of a list: text and bracketed ranges by turns, up to a comma that something follows.
_ITEM = re.compile(r"((?:[^\[\],\s]|\[[0-9,-]+\])+)(?:,(?=.)|\Z)")
_PART = re.compile(r"\[([0-9,-]+)\]|([^\[\]]+)")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_COUNT = re.compile(r"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?")


def expand_hosts(field: Field) -> list[str]:
    """Returns the hosts that Slurm's list in `field` names, in its order, which is that of the ranks.

    Ranges keep their zeros ("n[009-011]"), and a name may have several ("rack[1-2]n[1-4]").

    Raises:
        ClusterSpecError: It is not set, not such a list, or names too many hosts.
    """
    hosts = chain.from_iterable(_expand_item(field, item) for item in _items(field))
    return _bounded(field, hosts, f"{field.name}={_HOSTS_EXAMPLE}")


def expand_counts(field: Field) -> list[int]:
    """Returns the number of tasks on each host, as Slurm's list in `field` gives it.

    Raises:
        ClusterSpecError: It is not set, not such a list, or too long.
    """
    parts = check_set(field, _COUNTS_EXAMPLE).split(",")
    counts = chain.from_iterable(_expand_count(field, part) for part in parts)
    return _bounded(field, counts, f"{field.name}={_COUNTS_EXAMPLE}")


def _bounded(field: Field, entries: Iterator[_T], example: str) -> list[_T]:
    found = list(islice(entries, MOST_TASKS + 1))
    if len(found) > MOST_TASKS:
        raise field.error(f"must have at most {MOST_TASKS} entries", example)
    return found


def _items(field: Field) -> Iterator[str]:
    text = check_set(field, _HOSTS_EXAMPLE)
    position = 0
    while position < len(text):
        match = _ITEM.match(text, position)
        if not match:
            raise field.error("must be a list of hosts as Slurm writes it", f"{field.name}={_HOSTS_EXAMPLE}")
        yield match[1]
        position = match.end()


def _expand_item(field: Field, item: str) -> Iterator[str]:
    parts = [_expand_part(field, ranges) if ranges else [text] for ranges, text in _PART.findall(item)]
    # Before anything is made of it: the product of a few short brackets can be beyond any memory.
    if math.prod(len(part) for part in parts) > MOST_TASKS:
        raise field.error(f"must name at most {MOST_TASKS} hosts", f"{field.name}={_HOSTS_EXAMPLE}")
    return map("".join, product(*parts))


def _expand_part(field: Field, ranges: str) -> list[str]:
    numbers = chain.from_iterable(_expand_range(field, text) for text in ranges.split(","))
    return _bounded(field, numbers, f"{field.name}={_HOSTS_EXAMPLE}")


def _expand_range(field: Field, text: str) -> Iterator[str]:
    match = _RANGE.fullmatch(text)
    low, high = (match[1], match[2] or match[1]) if match else ("1", "0")
    if int(low) > int(high):
        raise field.error(f'has a range that is none: "{text}"', f"{field.name}={_HOSTS_EXAMPLE}")
    return (str(number).zfill(len(low)) for number in range(int(low), int(high) + 1))


def _expand_count(field: Field, part: str) -> Iterator[int]:
    match = _COUNT.fullmatch(part)
    if not match:
        raise field.error("must be numbers of tasks as Slurm writes them", f"{field.name}={_COUNTS_EXAMPLE}")
    return repeat(int(match[1]), int(match[2] or 1))
