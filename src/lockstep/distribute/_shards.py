"""Ranges of rows of a variable that is made in the scope of a strategy with a partitioner."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.distribute._context import get_strategy


@dataclass(frozen=True)
class RowRange:
    """A range of rows of a variable.

    Attributes:
        rows: From one row and below another.
        server: The number of the server that holds them; `None` where that depends on the other variables.
    """

    rows: tuple[int, int]
    server: int | None


def partition_in_scope(shape: tuple[int, ...], dtype: str) -> tuple[RowRange, ...] | None:
    """Returns the ranges into which the strategy whose scope is open divides a variable; `None` for a whole one."""
    from lockstep.distribute._parameter_server import ParameterServerStrategy

    strategy = get_strategy()
    if not isinstance(strategy, ParameterServerStrategy) or not shape:
        return None
    servers, partitioner = strategy._num_servers, strategy._asked.partitioner  # pyright: ignore[reportPrivateUsage]
    if partitioner is None or not servers:
        return None
    from lockstep._engine.keras.servers.spec import row_ranges
    from lockstep._engine.servers.layout import dtype_of

    sizes = row_ranges(shape[0], int(partitioner(shape, dtype_of(dtype))[0]))
    if len(sizes) < 2:
        return None
    # With as many ranges as servers each has one, in order; others begin where the fewest bytes are.
    ends = [sum(sizes[: n + 1]) for n in range(len(sizes))]
    own = len(sizes) == servers
    return tuple(RowRange((e - s, e), n if own else None) for n, (e, s) in enumerate(zip(ends, sizes, strict=True)))
