"""What XLA's CPU backend is given in place of its own, where that is slow.

Lowerings: a primitive means the same with them as without; only the operations that XLA is given for it differ, and
only on the CPU, for shapes that were measured faster. And for loops an option of its compiler (`in_place`).
`LOCKSTEP_XLA_LOWERINGS=0` in the environment switches all of it off.
"""
