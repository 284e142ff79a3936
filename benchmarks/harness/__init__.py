"""What all measurements share: cases, processes, medians, tables, plots. Only the standard library and numpy."""

from __future__ import annotations
