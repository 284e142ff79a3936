"""Views of modules to which this package adds nothing."""

from __future__ import annotations

__all__: list[str] = []
