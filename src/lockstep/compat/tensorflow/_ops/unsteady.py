"""The error of what cannot be compiled because it must be different each time."""

from __future__ import annotations

from lockstep.errors import UnsupportedError


def drawn_while_traced() -> Exception:
    """Returns the error of a random number that JAX would compile in.

    Map functions of data sets that raise it are called for each element instead, in order.
    """
    from lockstep.data._tracing import NonDeterministicError

    class DrawnWhileTracedError(UnsupportedError, NonDeterministicError):
        pass

    return DrawnWhileTracedError(
        "Random numbers inside of code that JAX compiles must come from a seed that changes: a number drawn here would "
        "be the same in every step. In a layer make keras.random.SeedGenerator in __init__ and call keras.random "
        "functions with it; elsewhere use tf.random.stateless_* functions with a seed that is an argument."
    )
