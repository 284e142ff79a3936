"""Sums over replicas that are processes of one machine: through shared memory, from inside compiled programs. Private.

XLA's own all-reduce between CPU processes goes through the loopback interface, whose copies both processes pay for with
the time that they need to compute. Here a compiled program calls back into Python, which adds up blocks of memory that
the processes share.

    traced    `all_reduce`     the operation, as a program that is being traced sees it
    compiled  `abi`, `target`  a call of XLA's foreign function interface becomes a `Call`
    running   `engine`         one thread that brings the calls of all processes together, `rounds` at a time
    between   `links`          sockets that say "my part is written", and notice at once when a process ends
              `memory`         what each process writes and the others read
    before    `neighbours`     finds out whether the processes share a machine, and connects them
"""

from __future__ import annotations
