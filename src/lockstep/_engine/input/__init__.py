"""The feed: turns what the user passes as data into global batches on the replicas, in time. Private.

The only place that knows epochs of data, sharing, and agreement on whether there is a next batch.
"""

from __future__ import annotations
