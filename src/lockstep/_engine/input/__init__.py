"""Input: global batches on the replicas, in time, from whatever the user passes as data. Private.

The only place that knows epochs of data, sharing, and agreement on whether there is a next batch.
"""

from __future__ import annotations
