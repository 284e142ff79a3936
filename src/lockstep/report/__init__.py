"""Reports of runs: `report.html` in a run's log directory, made of small records that each task appends to.

`lockstep report`, `lockstep watch` and `lockstep compare` are the same on the command line. Importing this imports
neither jax nor keras.
"""

from __future__ import annotations

from lockstep.report._page import write_report as write_report

__all__ = ["write_report"]
