"""Reports of runs: `report.html` in a run's log directory, made of small records that each task appends to.

`lockstep report`, `lockstep watch` and `lockstep compare` are the same on the command line. Importing this imports
neither jax nor keras.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep.report._page import write_report as write_report

__all__ = ["write_report"]


def __getattr__(name: str) -> Any:
    # Every task of a run writes a record, for which it imports this package; one of them, at most, draws the page.
    if name in __all__:
        from lockstep.report._page import write_report

        return write_report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
