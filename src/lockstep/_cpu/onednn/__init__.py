"""Convolutions by oneDNN, the library behind TensorFlow's on the CPU, in place of XLA's own.

XLA's CPU backend has fast kernels for common convolutions, and slow ones for most gradients of kernels, for pictures
with few channels and for strides. oneDNN has one for each of them. Its shared library is a package of its own, written
in C++ and called through ctypes, so that nothing is compiled here.

    library      finds and loads it
    calls        what is computed, as a program says it
    pieces       divides a call among threads
    plan         the primitives of a call
    operation    a call that has been prepared
    threads      compute its pieces
    memory       what calls need besides their operands
    custom_call  the target that XLA's programs call

Without the library, or with `LOCKSTEP_ONEDNN=0`, XLA computes everything. The tasks of a job must agree on it.

Source: https://uxlfoundation.github.io/oneDNN/, version 3.
"""

from __future__ import annotations
