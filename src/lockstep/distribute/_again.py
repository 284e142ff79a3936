"""The way out of a trace that is to be made once more."""

from __future__ import annotations


class Again(Exception):  # It is a way out of a trace, not an error.
    """A trace has found what it should have known at its start, and is to be made again."""
