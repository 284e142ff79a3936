"""Who uses which value of a step."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from jax import lax

from lockstep._cpu.partitioner.flat import Equation, Flat, Value


class Uses:
    """The equations of a step by what they make and take."""

    def __init__(self, flat: Flat) -> None:
        self.equations = flat.equations
        self._places = {equation: place for place, equation in enumerate(flat.equations)}
        self._users: dict[Value, list[Equation]] = {}
        self._outputs = frozenset(flat.outputs)
        self._makers: dict[Value, Equation] = {}
        for equation in flat.equations:
            self._makers.update(dict.fromkeys(equation.outputs, equation))
            for value in dict.fromkeys(equation.inputs):
                self._users.setdefault(value, []).append(equation)

    def place(self, equation: Equation) -> int:
        """Which one it is."""
        return self._places[equation]

    def users(self, value: Value) -> Sequence[Equation]:
        """The equations that take it."""
        return self._users.get(value, ())

    def maker(self, value: Value) -> Equation | None:
        """The equation that makes it, unless it is an input or a constant."""
        return self._makers.get(value)

    def is_needed_beside(self, value: Value, equations: Collection[Equation]) -> bool:
        """Whether it is an output of the step, or others than these take it."""
        return value in self._outputs or any(user not in equations for user in self.users(value))

    def turn(self, value: Value) -> Equation | None:
        """The transposition by which alone it is needed, as with gradients of kernels, which differentiation turns."""
        users = self.users(value)
        if len(users) != 1 or users[0].primitive is not lax.transpose_p or self.is_needed_beside(value, users):
            return None
        return users[0]
