"""`lockstep doctor`: looks at a machine, and at a cluster, before a program has to find out.

Every check returns findings; none raises, and each has a time limit. Modules are imported when a check needs them, so
that the command line starts without jax.
"""

from __future__ import annotations
