"""The one loop, which runs a step program over a feed and calls a listener. Private."""

from __future__ import annotations
