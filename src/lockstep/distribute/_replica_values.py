"""Variables of which each replica has, or may have, a value of its own."""

from __future__ import annotations

from lockstep._types import Variable

_APART = "_lockstep_apart"


def is_own(variable: Variable) -> bool:
    """Returns whether each replica has a value of its own, which are combined when it is read."""
    return variable.synchronization == "on_read" or is_apart(variable)


def is_apart(variable: Variable) -> bool:
    """Returns whether replicas have assigned different values to a variable that lets each keep its own.

    That is a `tf.Variable` without aggregation: whoever reads it in cross-replica context gets the first replica's.
    """
    return getattr(variable, _APART, False)


def may_be_apart(variable: Variable) -> bool:
    """Returns whether replicas may keep different values of a variable."""
    # Keras' own variables do not: a layer that says nothing of its weights is wrong on several replicas.
    return variable.aggregation == "none" and getattr(variable, "keeps_replica_values", False)


def keep_apart(variable: Variable) -> bool:
    """Lets each replica keep its own value from now on; returns whether the variable allows it."""
    allows = may_be_apart(variable)
    if allows:
        setattr(variable, _APART, True)
    return allows


def aggregation(variable: Variable) -> str:
    """Returns how values of replicas are combined; of batch normalisation's moving averages as tf.keras does it."""
    # tf.keras' layer makes these with aggregation MEAN; Keras 3 says nothing of them, which would be an error here.
    is_moving = variable.path.endswith(("/moving_mean", "/moving_variance"))
    return "mean" if variable.aggregation == "none" and is_moving else variable.aggregation
