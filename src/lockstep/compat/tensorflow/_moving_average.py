"""tf.train.ExponentialMovingAverage: averages of variables over the steps of a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lockstep.compat.tensorflow._ops.named import model_fn_scope
from lockstep.compat.tensorflow._ops.variable import Variable
from lockstep.errors import ArgumentError, UnsupportedError


class ExponentialMovingAverage:
    """Averages of variables, in which each update counts `decay` times as much as the next one.

    An average begins with the variable's value at the first `apply`.

    Source: tf.train.ExponentialMovingAverage.
    """

    def __init__(
        self, decay: float, num_updates: Any = None, zero_debias: bool = False, name: str = "ExponentialMovingAverage"
    ) -> None:
        """Creates it without averages.

        Args:
            decay: How much of an average stays in an update.
            num_updates: The number of the update: with it early averages follow faster, by
                min(decay, (1 + n) / (10 + n)).
            zero_debias: Refused where it is true: averages begin with values, which have no bias.
            name: What the averages' names end with.
        """
        if zero_debias:
            raise ArgumentError("Averages of variables begin with their values, without a bias. Leave zero_debias out.")
        self._decay, self._count, self._name = decay, num_updates, name
        self._averages: dict[int, tuple[Any, Any]] = {}

    @property
    def name(self) -> str:
        """What the averages' names end with."""
        return self._name

    def apply(self, var_list: Sequence[Any] | None = None) -> None:
        """Makes averages of variables, or moves those that there are towards the variables' values.

        Args:
            var_list: Variables, all floating-point.

        Raises:
            UnsupportedError: In a model_fn, or of tensors.
        """
        if model_fn_scope() is not None:
            raise UnsupportedError("In a model_fn use an optimizer of tf.keras with use_ema=True.")
        if var_list is None:
            raise ArgumentError("There is no list of all variables outside of a model_fn. Pass var_list.")
        for variable in var_list:
            if not hasattr(variable, "assign"):
                raise UnsupportedError(
                    f"Averages are of variables. Received: {variable!r}. Assign the tensor to a tf.Variable."
                )
            if id(variable) not in self._averages:
                # Keras allows no path as a name.
                name = self.average_name(variable).replace("/", "_")
                made = Variable(np.asarray(variable), trainable=False, name=name)
                self._averages[id(variable)] = variable, made
                continue
            average = self._averages[id(variable)][1]
            decay = self._decay
            if self._count is not None:
                count = float(np.asarray(self._count))
                decay = min(decay, (1 + count) / (10 + count))
            average.assign_sub((average - variable) * (1 - decay))

    def average(self, var: Any) -> Any:
        """Returns the variable that holds the average of one; `None` if there is none yet."""
        found = self._averages.get(id(var))
        return None if found is None else found[1]

    def average_name(self, var: Any) -> str:
        """Returns the name of the variable that holds, or would hold, the average of one."""
        return f"{str(var.name).removesuffix(':0')}/{self._name}"

    def variables_to_restore(self, moving_avg_variables: Sequence[Any] | None = None) -> dict[str, Any]:
        """Returns variables by the names of their averages, from whose values they are restored."""
        chosen = [pair[0] for pair in self._averages.values()] if moving_avg_variables is None else moving_avg_variables
        return {self.average_name(variable): variable for variable in chosen}
