"""What input_fns return, and functions that make input_fns; private."""

from __future__ import annotations
