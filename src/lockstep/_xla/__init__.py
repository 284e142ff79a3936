"""Lowerings for XLA's CPU backend, in place of its own where those are slow.

A primitive means the same with them as without; only the operations that XLA is given for it differ, and only on the
CPU, for shapes that were measured faster. `LOCKSTEP_XLA_LOWERINGS=0` in the environment switches all of them off.
"""
