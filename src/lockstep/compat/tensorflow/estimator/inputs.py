"""tf.estimator.inputs: the functions of lockstep.estimator.inputs, whose input_fns can be called, too."""

from __future__ import annotations

import functools as _functools
from collections.abc import Callable as _Callable
from typing import Any as _Any

from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow._types import Argument as _Argument

__all__ = ["numpy_input_fn", "pandas_input_fn"]


def _function(name: str) -> _Callable[..., _Any]:
    def make(*args: _Argument, **kwargs: _Argument) -> _Any:
        # Imported late: all of lockstep.estimator comes with them.
        from lockstep.estimator import inputs
        from lockstep.estimator.internal import OneShotIterator

        made = getattr(inputs, name)(*args, **kwargs)

        @_functools.wraps(made)
        def input_fn() -> _Any:
            # As in TensorFlow: what stands for features, and for labels if there are any, to be rearranged.
            return OneShotIterator(made()).get_next()

        return input_fn

    make.__name__ = make.__qualname__ = name
    make.__doc__ = (
        f"Makes an input_fn; see lockstep.estimator.inputs.{name}.\n\n"
        "Called, it returns features, and labels if there are any, which may be taken apart, but not computed with.\n\n"
        f"Source: tf.compat.v1.estimator.inputs.{name}."
    )
    return make


numpy_input_fn = _function("numpy_input_fn")
pandas_input_fn = _function("pandas_input_fn")

__getattr__ = _getter(__name__)
