"""Functions that tf.function compiles: how calls find their programs, traces, variables as state, and derivatives."""
