"""For views of modules that Keras 3 has not, or in which nothing is added."""

from __future__ import annotations

__all__: list[str] = []
