"""What is measured, a file a row: each has `CASES`, and the functions that its sides run."""

from __future__ import annotations
