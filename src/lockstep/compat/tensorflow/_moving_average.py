"""tf.train.ExponentialMovingAverage: averages of variables over the steps of a training."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow._error_kinds import ArgumentTypeError
from lockstep.compat.tensorflow._ops.named import model_fn_scope
from lockstep.compat.tensorflow._ops.variable import Variable
from lockstep.compat.tensorflow._types import Trackable
from lockstep.errors import ArgumentError, UnsupportedError

__all__ = ["ExponentialMovingAverage"]


class ExponentialMovingAverage:
    """Averages of variables: each `apply` sets `average = decay * average + (1 - decay) * variable`.

    An average begins with the value that its variable has at the first `apply`. With `num_updates` the decay is at
    most `(1 + num_updates) / (10 + num_updates)`.

    Attributes:
        name: What the averages' names end with.

    Source: tf.train.ExponentialMovingAverage.
    """

    def __init__(
        self,
        decay: float,
        num_updates: Tensor = None,
        zero_debias: bool = False,
        name: str = "ExponentialMovingAverage",
    ) -> None:
        """Creates it without averages; `zero_debias` changes nothing, as in TensorFlow for variables."""
        self.name = name
        self._decay, self._updates = decay, num_updates
        self._averages: dict[int, tuple[Any, Variable]] = {}

    def apply(self, var_list: Iterable[Trackable] | None = None) -> None:
        """Updates the averages of variables, of any floating type; of none of them without a list.

        Raises:
            UnsupportedError: In a model_fn, whose step sees an update only if it is its train_op.
            ArgumentTypeError: For what is no variable, or holds no floats.
        """
        if model_fn_scope() is not None:
            raise UnsupportedError(
                "ExponentialMovingAverage works in plain Python, tf.functions and strategy.run. Received: a call in a "
                "model_fn. Use an optimizer of tf.keras with use_ema=True there."
            )
        decay: Any = self._decay
        if self._updates is not None:
            updates = np.float32(self._updates)
            decay = min(np.float32(decay), (1 + updates) / (10 + updates))
        for variable in var_list or ():
            if not hasattr(variable, "assign"):
                raise ArgumentTypeError(
                    "tf.train.ExponentialMovingAverage does not support non-Variable tensors when eager execution is "
                    f"enabled. Received: {variable!r:.80}. Keep the tensor in a tf.Variable."
                )
            if not np.dtype(str(variable.dtype)).name.startswith(("float", "bfloat")):
                raise ArgumentTypeError(f"The variables must be half, float, or double. Received: {variable!r:.80}.")
            if id(variable) not in self._averages:
                self._averages[id(variable)] = (variable, self._first(variable))
                continue
            average = self._averages[id(variable)][1]
            average.assign_sub((average - variable) * (1 - decay))

    def _first(self, variable: Any) -> Variable:
        path = getattr(variable, "path", None) or variable.name
        # What a function that is being traced computes is no first value; the variable's own is there.
        return Variable(np.asarray(variable), trainable=False, name=f"{path}/{self.name}", aggregation="mean")

    def average(self, var: Trackable) -> Any:
        """Returns the variable that holds the average of another, `None` before its first `apply`."""
        return self._averages.get(id(var), (None, None))[1]

    def average_name(self, var: Trackable) -> str:
        """Returns the name of a variable's average."""
        return f"{getattr(var, 'path', None) or var.name}/{self.name}"

    def variables_to_restore(self, moving_avg_variables: Iterable[Trackable] | None = None) -> dict[str, Any]:
        """Returns variables by the names of their averages, those without an average by their own.

        Raises:
            ArgumentError: Without a list: there is no collection of all variables.
        """
        if moving_avg_variables is None:
            raise ArgumentError("variables_to_restore needs a list. Received: None. Pass model.trainable_variables.")
        return {self.average_name(variable): variable for variable in moving_avg_variables}
