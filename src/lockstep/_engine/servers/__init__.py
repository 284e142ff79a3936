"""Parameter servers: shards of variables on tasks of type `ps`, updated once by workers that come and go. Private."""

from __future__ import annotations
