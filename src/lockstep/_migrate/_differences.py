"""Differences of names that lockstep has, and TensorFlow too: the short form of docs/tensorflow_differences.md."""

from __future__ import annotations

import re

# By a pattern of full names, tf.compat.v1's included; the first that fits counts.
_DIFFERENCES: tuple[tuple[str, str], ...] = (
    (
        r"tf\.GradientTape",
        "In a function of strategy.run on several replicas a tape has gradient alone, of that replica.",
    ),
    (r"tf\.gradients", "Inside of a model_fn; derivatives are averages over the replicas."),
    (
        r"tf\.function",
        "It is compiled; text and numpy in it run operation by operation.",
    ),
    (r"tf\.control_dependencies", "Operations are carried out where they are written; nothing is left to order."),
    (
        r"tf\.(random\..*|random_(uniform|normal|shuffle|crop)|set_random_seed|truncated_normal)",
        "Other random numbers than TensorFlow's, repeatable after tf.random.set_seed.",
    ),
    (r"tf\.(strings|text)\.to_hash_bucket.*|tf\.lookup\.StaticVocabularyTable", "Hashes are other ones."),
    (
        r"tf\.(boolean_mask|where|unique|unique_with_counts|dynamic_partition|math\.bincount)",
        "Where the shape of the result depends on values, on the host only.",
    ),
    (
        r"tf\.((enable|disable)_\w+|global_variables_initializer|tables_initializer|local_variables_initializer)",
        "It changes nothing: there are no graphs and sessions.",
    ),
    (r"tf\.(placeholder|parse_example)", "It says what an exported model takes."),
    (
        r"tf\.config\..*(set_memory_growth|set_logical_device_configuration|set_virtual_device_configuration)",
        "Memory growth is a setting of JAX for all GPUs; memory limits are refused.",
    ),
    (r"tf\.config\.list_.*", "It does not start JAX, so that a strategy can be created after it."),
    (r"tf\.errors\..*", "lockstep's errors under TensorFlow's names; some are for except clauses only."),
    (
        r"tf\.debugging\.assert_.*|tf\.assert_.*|tf\.Assert",
        "Where values are known; in a model_fn after the step.",
    ),
    (r"tf\.Variable", "A variable of Keras: numbers of a fixed shape, no text."),
    (
        r"tf\.summary\..*",
        "In a model_fn, and with a writer outside of strategy.run; with fit use the TensorBoard callback.",
    ),
    (
        r"tf\.train\.(Checkpoint|CheckpointManager)",
        "Files are lockstep's own; those of TensorFlow 2 are read. A model is built before it is restored.",
    ),
    (r"tf\.saved_model\..*", "Exports are lockstep's own; `lockstep export` writes TensorFlow's SavedModel."),
    (r"tf\.(ConfigProto|GPUOptions)", "Settings that change no result are accepted."),
    (r"tf\.layers\.batch_normalization", "Moving averages are updated without UPDATE_OPS."),
)
_PATTERNS = tuple((re.compile(pattern), text) for pattern, text in _DIFFERENCES)


def difference_of(name: str) -> str | None:
    """Returns what differs in one of TensorFlow's names that is there, or `None`."""
    plain = re.sub(r"\Atf\.compat\.v[12]\.", "tf.", name)
    # Methods differ as their class does.
    return next((text for pattern, text in _PATTERNS if pattern.match(plain)), None)
