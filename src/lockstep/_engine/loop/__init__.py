"""The loop that drives a step program over a feed and tells its listener. The only one. Private."""

from __future__ import annotations
