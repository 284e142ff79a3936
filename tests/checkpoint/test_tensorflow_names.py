"""Names that TensorFlow's programs give variables, for those that the same programs give them here."""

from __future__ import annotations

import pytest

from lockstep.checkpoint._tensorflow.names import find_names


@pytest.mark.parametrize(
    ("keys", "names", "found"),
    [
        (["dense/kernel", "global_step"], ["dense/kernel", "global_step"], ["dense/kernel", "global_step"]),
        # TensorFlow 1's optimizers are called alike; canned Estimators' variables were in one piece by a partitioner.
        (["a/k", "a/k/Adam_1"], ["a/k", "a/k/Adam", "a/k/Adam_1"], ["a/k", "a/k/Adam_1"]),
        (["a/k", "a/k/Adagrad"], ["a/k", "a/k/t_0/Adagrad"], ["a/k", "a/k/t_0/Adagrad"]),
        (["a/k", "a/k/Ftrl_1"], ["a/k", "a/k/part_0/Ftrl_1"], ["a/k", "a/k/part_0/Ftrl_1"]),
        # Keras' two kinds of optimizers.
        (["a/k", "adam/a_k_velocity"], ["a/k", "training/Adam/a/k/v"], ["a/k", "training/Adam/a/k/v"]),
        (["a/k", "adam/a_k_velocity"], ["a/k", "Adam/v/a/k"], ["a/k", "Adam/v/a/k"]),
        (["a/k", "rmsprop/a_k_velocity"], ["a/k", "RMSprop/a/k/rms"], ["a/k", "RMSprop/a/k/rms"]),
        (["a/k", "adamax/a_k_u"], ["a/k", "Adamax/a/k/v"], ["a/k", "Adamax/a/k/v"]),
        (["a/k", "sgd/a_k_momentum"], ["a/k", "mine/a/k/momentum"], ["a/k", "mine/a/k/momentum"]),
        (
            ["adam/iteration", "adam/learning_rate"],
            ["Adam/iter", "Adam/learning_rate"],
            ["Adam/iter", "Adam/learning_rate"],
        ),
        (["adam/iteration"], ["global_step"], ["global_step"]),
        # Keras 3 says the model's name, too.
        (["sequential/dense/kernel"], ["dense/kernel"], ["dense/kernel"]),
        (
            ["functional/a/k", "adam/functional_a_k_momentum"],
            ["a/k", "training/Adam/a/k/m"],
            ["a/k", "training/Adam/a/k/m"],
        ),
    ],
)
def test_names_are_found(keys: list[str], names: list[str], found: list[str]) -> None:
    result = find_names(keys, names)
    assert [result.found[key] for key in keys] == found
    assert result.missing == []


@pytest.mark.parametrize(
    ("keys", "names", "missing"),
    [
        # Which of two it is would be a guess.
        (["x/dense/kernel", "y/dense/kernel"], ["dense/kernel"], ["x/dense/kernel", "y/dense/kernel"]),
        (["a/k", "adam/a_k_momentum"], ["a/k", "one/a/k/m", "two/a/k/m"], ["adam/a_k_momentum"]),
        # What Adam keeps is not what SGD does, whatever it is called.
        (["a/k", "sgd/a_k_momentum"], ["a/k", "Adam/a/k/m"], ["sgd/a_k_momentum"]),
        (["kernel"], ["dense/kernel"], ["kernel"]),
        (["adam/iteration"], ["step"], ["adam/iteration"]),
    ],
)
def test_nothing_is_guessed(keys: list[str], names: list[str], missing: list[str]) -> None:
    assert find_names(keys, names).missing == missing


def test_two_optimizers_of_one_variable() -> None:
    names = ["a/k", "training/Adagrad/a/k/accumulator", "training/Ftrl/a/k/accumulator", "training/Ftrl/a/k/linear"]
    keys = ["a/k", "adagrad/a_k_accumulator", "ftrl/a_k_accumulator", "ftrl/a_k_linear"]
    assert find_names(keys, names).found == dict(zip(keys, names, strict=True))


def test_what_is_left_over() -> None:
    result = find_names(["a/k"], ["a/k", "a/k/Adam", "Adam/beta_1", "Adam/learning_rate"])
    assert (result.left_over, result.arguments) == (["a/k/Adam"], ["Adam/beta_1", "Adam/learning_rate"])
