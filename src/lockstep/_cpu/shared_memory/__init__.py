"""All-reduce between processes of one machine, through shared memory. Private; README.md beside it says why and how."""

from __future__ import annotations
