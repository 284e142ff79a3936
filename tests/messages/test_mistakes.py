"""Thirty typical mistakes: each message has the rule, what was received, and the next step, and names its page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from lockstep._messages import reading
from lockstep.errors import LockstepError
from tests.messages.mistakes import MISTAKES
from tests.support.ports import free_port


@dataclass(frozen=True)
class Expected:
    """Parts of a message, in regular expressions: the rule, the received value, and the next step; and the page."""

    rule: str
    received: str
    step: str
    page: str


_CORRECT = "Correct example: "
EXPECTED = {
    "tf_config_with_single_quotes": Expected("must be JSON", r"Received: \"\{'cluster", _CORRECT, "cluster"),
    "tf_config_cut_off": Expected("must be JSON", 'Received: \'{"cluster"', _CORRECT, "cluster"),
    "tf_config_index_too_large": Expected("2 tasks, index 0 to 1", "Received: 2", _CORRECT, "cluster"),
    "tf_config_unknown_type": Expected("must be one of the jobs", "Received: 'master'", _CORRECT, "cluster"),
    "tf_config_without_a_port": Expected("must have a port", "Received: 'host1'", _CORRECT, "cluster"),
    "tf_config_port_too_large": Expected("from 1 to 65535", "Received: 'host1:70000'", _CORRECT, "cluster"),
    "tf_config_one_address_twice": Expected("no two tasks may share", "Received: 'host1:2222'", _CORRECT, "cluster"),
    "tf_config_with_a_scheme": Expected("alone: drop the scheme", "Received: 'http://host1", _CORRECT, "cluster"),
    "a_scope_in_another_scope": Expected("cannot be nested", "received OneDevice", "Leave the first", "startup-order"),
    "a_backup_of_a_model_without_scope": Expected(
        "needs a model that belongs to a strategy", "Received: a model of plain Keras", "Create or compile", "callbacks"
    ),
    "fit_of_no_rows": Expected("at least one batch", "Received: no batch", "Check its source", "training-data"),
    "fit_of_text": Expected("must hold numbers", "Received: object", "Turn text into numbers", "training-step"),
    "fit_of_integers_beyond_32_bits": Expected(
        "must fit into them", "Received: 1099511627776", "Hash such", "training-step"
    ),
    "a_path_of_weights_without_their_ending": Expected(
        "ends with .weights.h5", "received filepath='.*best.h5'", "Change its ending", "callbacks"
    ),
    "a_file_that_is_not_there": Expected(
        "each worker needs the file", "there is no file .*train", "Check the name", "data-not-found"
    ),
    "a_batch_of_nothing": Expected("must be at least 1", "Received: 0", "Example: batch_size=1", "datasets"),
    "rows_of_different_lengths": Expected("the same shape", r"Received: \(1,\)", "padded_batch", "datasets"),
    "a_cardinality_that_is_not_kept": Expected(
        "was expected to contain 9", "contained only 6", "Check the source", "cardinality"
    ),
    "a_data_set_that_is_misspelled": Expected(
        "one of those that there are",
        "Received: 'minst'",
        "Take the name of one, nearest first: mnist",
        "data-sets-by-name",
    ),
    "a_split_that_does_not_exist": Expected(
        "one that the data set has", "Received: 'validation'", "Take one of 'train'", "data-sets-by-name"
    ),
    "an_array_to_distribute": Expected("needs a lockstep.data.Dataset", "Received: ndarray", "Make one", "strategies"),
    "nccl_without_gpus": Expected("needs GPUs", "of type 'cpu'", "Use AUTO", "communication-options"),
    "a_step_that_returns_its_state_alone": Expected(
        r"returns \(state, logs\)", "Received: dict", "Return the new state", "program"
    ),
    "a_state_that_changes_its_shape": Expected(
        "the shape and type it had", r"w is float32\[2\], and becomes float32\[1\]", "convert it", "program"
    ),
    "a_model_fn_without_train_op": Expected("training needs one", "Missing train_op", "Pass what", "model-fn"),
    "a_loss_for_each_example": Expected("must be scalar", r"shape \(2, 1\)", "Take tf.reduce_mean", "model-fn"),
    "categories_in_a_deep_network": Expected("must give numbers", "Received: city", "Wrap it", "feature-columns"),
    "a_checkpoint_that_is_cut_off": Expected(
        "is not a usable checkpoint", "model.ckpt-1.npz", "Take another one", "checkpoints"
    ),
    "an_old_name_of_tensorflow": Expected(
        "no graphs and sessions", "tf.Session", "Put what builds the graph into a model_fn", "tensorflow-names"
    ),
    "a_model_fn_without_features": Expected("must include features", "Received: ", "Example: ", "estimator"),
    "a_training_of_no_steps": Expected("steps > 0", "Received: 0", "Example: steps=1000", "estimator"),
}

# Mistakes of a whole program: its variables, its text.
_STRATEGY = "import lockstep as ls\nls.distribute.MultiWorkerMirroredStrategy()\n"
_ONE = '{"cluster": {"worker": ["127.0.0.1:PORT", "127.0.0.1:1"]}, "task": {"type": "worker", "index": 0}}'
PROGRAMS = {
    "another backend": (
        {"KERAS_BACKEND": "tensorflow"},
        "import lockstep",
        Expected("must be jax, or not set", "Received: 'tensorflow'", "Remove it", "startup-order"),
    ),
    "keras above lockstep": (
        {"KERAS_BACKEND": "numpy"},
        "import keras, os\ndel os.environ['KERAS_BACKEND']\nimport lockstep",
        Expected("on Keras' JAX backend", "Received: Keras, already", "Put `import lockstep` above", "startup-order"),
    ),
    "a strategy below a computation": (
        {"TF_CONFIG": _ONE},
        "import lockstep\nimport jax\njax.numpy.ones(2) + 1\n" + _STRATEGY,
        Expected("must be created before JAX computes", "line 5|program.py:5", "Move .* up", "startup-order"),
    ),
    "a limit that is no number": (
        {"TF_CONFIG": _ONE, "LOCKSTEP_JOIN_TIMEOUT": "5m"},
        _STRATEGY,
        Expected("positive number of seconds", "Received: '5m'", "Example: LOCKSTEP_JOIN_TIMEOUT=", "environment"),
    ),
    "a secret that is too short": (
        {"TF_CONFIG": _ONE, "LOCKSTEP_CLUSTER_SECRET": "abc"},
        _STRATEGY,
        Expected("must have .* bytes", "Received: 3", "openssl|secrets|Example", "secret"),
    ),
    "a worker that does not come": (
        {"TF_CONFIG": _ONE, "LOCKSTEP_JOIN_TIMEOUT": "1"},
        _STRATEGY,
        Expected("must arrive within 1 s", "Missing: worker 1", "Start", "missing-task"),
    ),
}


def _assert_says(message: str, notes: list[str], expected: Expected) -> None:
    for part in (expected.rule, expected.received, expected.step):
        assert part, "every part is named here"
        assert re.search(part, message, re.DOTALL), f"{part!r} is not in: {message}"
    assert any(note.startswith(f"Read on: lockstep explain {expected.page}") for note in notes), notes
    assert "| cause | remedy |" in reading.text_of(expected.page)


def test_there_are_thirty() -> None:
    assert len(MISTAKES) + len(PROGRAMS) >= 30
    assert MISTAKES.keys() == EXPECTED.keys()


@pytest.mark.parametrize("name", MISTAKES)
def test_a_message_says_what_is_wrong_and_what_to_do(name: str, tmp_path: Path) -> None:
    with pytest.raises((LockstepError, AttributeError)) as caught:
        MISTAKES[name](tmp_path)
    _assert_says(str(caught.value), caught.value.__notes__, EXPECTED[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_says_what_is_wrong_and_what_to_do(name: str, tmp_path: Path) -> None:
    variables, text, expected = PROGRAMS[name]
    program = tmp_path / "program.py"
    program.write_text(text)
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "PYTHONPATH")}
    port = str(free_port())
    given = {k: v.replace("PORT", port) for k, v in variables.items()}
    settings = {**kept, "JAX_PLATFORMS": "cpu", **given}
    done = subprocess.run([sys.executable, str(program)], env=settings, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    _assert_says(done.stderr, done.stderr.splitlines(), expected)
