"""Says that there is no such package; see README.md."""

from __future__ import annotations

raise ModuleNotFoundError("tests start their tasks without requests", name="requests")
