"""Products of matrices for short steps on one CPU, in C, compiled where they run.

XLA leaves a product of few rows to one core, and what an optimizer does with a gradient waits until all of it has been
written. A step of half a millisecond lost a third of its time to both. Where there is no C compiler, XLA's are used.
"""
