"""Data sets, those of one source in a file, as `DATA_SETS`."""

from __future__ import annotations
