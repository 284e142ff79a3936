"""First values of variables, out of an earlier training's checkpoint."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lockstep.errors import ArgumentError, DataNotFoundError
from lockstep.estimator._weights import load_weights

_log = logging.getLogger("lockstep")

_Arrays = dict[str, np.ndarray[Any, Any]]


class _VocabInfo(NamedTuple):
    new_vocab: str | os.PathLike[str]
    new_vocab_size: int
    num_oov_buckets: int
    old_vocab: str | os.PathLike[str]
    old_vocab_size: int
    backup_initializer: Callable[..., Any] | None
    axis: int


class VocabInfo(_VocabInfo):
    """A change of vocabulary, by which rows of a variable move: each word keeps its row.

    Args:
        new_vocab: The new vocabulary, a file with a word on each line.
        new_vocab_size: How many of its words are used, from the first on.
        num_oov_buckets: How many rows of the variable, after those of words, are for unknown ones.
        old_vocab: The vocabulary of the checkpoint.
        old_vocab_size: How many of its words are used; -1: all.
        backup_initializer: Gives the rows of new words, and those for unknown ones: a function of shape and dtype,
            such as an initializer of Keras. Default: zeros.
        axis: 0 if words are rows; 1 if they are columns, as in the kernel of an output layer.

    Raises:
        ArgumentError: `axis` is neither 0 nor 1, or a size is out of range.

    Source: tf.estimator.VocabInfo.
    """

    __slots__ = ()

    def __new__(
        cls,
        new_vocab: str | os.PathLike[str],
        new_vocab_size: int,
        num_oov_buckets: int,
        old_vocab: str | os.PathLike[str],
        old_vocab_size: int = -1,
        backup_initializer: Callable[..., Any] | None = None,
        axis: int = 0,
    ) -> VocabInfo:
        """Checks and makes one."""
        if axis not in (0, 1):
            raise ArgumentError(f"The only supported values for axis are 0 and 1. Received: {axis!r}.")
        if new_vocab_size <= 0 or num_oov_buckets < 0:
            raise ArgumentError(
                "new_vocab_size must be above 0, and num_oov_buckets 0 or more. Received: "
                f"{new_vocab_size!r} and {num_oov_buckets!r}."
            )
        return super().__new__(
            cls, new_vocab, new_vocab_size, num_oov_buckets, old_vocab, old_vocab_size, backup_initializer, axis
        )


class _WarmStartSettings(NamedTuple):
    ckpt_to_initialize_from: str
    vars_to_warm_start: str | Sequence[str] | None
    var_name_to_vocab_info: dict[str, VocabInfo]
    var_name_to_prev_var_name: dict[str, str]


class WarmStartSettings(_WarmStartSettings):
    """Settings of a warm start: variables whose first values come from an earlier training.

    Names are those of checkpoints, such as "dense/kernel"; `lockstep.checkpoint.list_variables` lists them.

    Args:
        ckpt_to_initialize_from: A checkpoint, or a directory of which it takes the latest.
        vars_to_warm_start: A regular expression that names of trainable variables begin with; or a list of such, for
            all variables, those of optimizers included; or `None`, for those of `var_name_to_vocab_info` alone.
        var_name_to_vocab_info: A `VocabInfo` for each variable whose vocabulary changes.
        var_name_to_prev_var_name: The names that variables have in the checkpoint, where they differ.

    Raises:
        ArgumentError: There is no checkpoint given, or a value is of another kind.

    Source: tf.estimator.WarmStartSettings.
    """

    __slots__ = ()

    def __new__(
        cls,
        ckpt_to_initialize_from: str | os.PathLike[str],
        vars_to_warm_start: str | Sequence[str] | None = ".*",
        var_name_to_vocab_info: Mapping[str, VocabInfo] | None = None,
        var_name_to_prev_var_name: Mapping[str, str] | None = None,
    ) -> WarmStartSettings:
        """Checks and makes one."""
        path: Any = ckpt_to_initialize_from
        if not isinstance(path, (str, bytes, os.PathLike)) or not path:
            raise ArgumentError(
                "ckpt_to_initialize_from must be the path of a checkpoint, or of the directory that it lies in. "
                f"Received: {path!r}."
            )
        _check_patterns(vars_to_warm_start)
        return super().__new__(
            cls,
            os.fsdecode(path),
            vars_to_warm_start,
            dict(var_name_to_vocab_info or {}),
            dict(var_name_to_prev_var_name or {}),
        )


def _check_patterns(patterns: object) -> None:
    for pattern in patterns if isinstance(patterns, (list, tuple)) else [patterns]:
        if pattern is not None and not isinstance(pattern, str):
            raise ArgumentError(
                "vars_to_warm_start must be a regular expression, a list of such, or None. Received: "
                f"{patterns!r}. Give names instead of variables, such as ['dense/kernel']."
            )
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ArgumentError(
                f"vars_to_warm_start must be a regular expression. Received: {pattern!r} ({error})."
            ) from None


def warm_start_values(initial: Mapping[str, Any], trainable: Iterable[str], settings: WarmStartSettings) -> _Arrays:
    """Returns the first values of variables, by name, some of them from a checkpoint.

    Raises:
        ArgumentError: Settings name a variable that is not warm-started, or a value does not fit.
        DataNotFoundError: The checkpoint lacks a variable, or a vocabulary is not there.
    """
    path = settings.ckpt_to_initialize_from
    _log.info("Warm-starting from: %s", path)
    names = _select_names(list(initial), set(trainable), settings.vars_to_warm_start)
    _check_used("var_name_to_prev_var_name", settings.var_name_to_prev_var_name, names)
    _check_used("var_name_to_vocab_info", settings.var_name_to_vocab_info, names)
    # TensorFlow: None warm-starts only variables with vocabulary information.
    if settings.vars_to_warm_start is None:
        names = [name for name in names if name in settings.var_name_to_vocab_info]
    held = load_weights(path).arrays
    values = {name: np.asarray(value) for name, value in initial.items()}
    for name in names:
        old_name = settings.var_name_to_prev_var_name.get(name, name)
        if old_name not in held:
            known = ", ".join(sorted(held))
            raise DataNotFoundError(
                f"{name} cannot be warm-started: the checkpoint {path} has no {old_name}. It has {known}. Give "
                "its name there in var_name_to_prev_var_name, or leave the variable out of vars_to_warm_start."
            )
        array, initial_value = np.asarray(held[old_name]), values[name]
        vocabularies = settings.var_name_to_vocab_info.get(name)
        if vocabularies is not None:
            array = _remap_rows(name, array, initial_value, vocabularies)
        if array.shape != initial_value.shape:
            raise ArgumentError(
                f"{name} cannot be warm-started: it has shape {initial_value.shape}, and {array.shape} in the "
                "checkpoint. If its vocabulary changed, describe it in var_name_to_vocab_info; else leave it out of "
                "vars_to_warm_start."
            )
        values[name] = array.astype(initial_value.dtype, copy=False)
    _log.info("Warm-started %d variables.", len(names))
    return values


def _select_names(names: list[str], trainable: set[str], patterns: str | Sequence[str] | None) -> list[str]:
    """Returns the names of the variables to warm-start, by TensorFlow's rule: a list is for all variables."""
    if patterns is None or isinstance(patterns, str):
        _log.info("Warm-starting variables only in TRAINABLE_VARIABLES.")
        return _matching_names([name for name in names if name in trainable], patterns or "")
    matches = [name for pattern in patterns for name in _matching_names(names, pattern)]
    return list(dict.fromkeys(matches))


def _matching_names(names: list[str], pattern: str) -> list[str]:
    """Returns the names that match a pattern, also one for TensorFlow's names, which end in ":0"."""
    matches = [name for name in names if re.match(pattern, name) or re.match(pattern, f"{name}:0")]
    if not matches:
        _log.warning("vars_to_warm_start has a pattern that fits no variable: %r. There are %s.", pattern, names)
    return matches


def _check_used(setting: str, given: Mapping[str, Any], names: list[str]) -> None:
    # TensorFlow raises an error as well: a misspelled name would silently train from new values.
    unused = [name for name in given if name not in names]
    if unused:
        raise ArgumentError(
            f"{setting} must name variables that are warm-started. Received: {', '.join(unused)}. Perhaps you "
            f"misspelled them? There are {', '.join(names) or 'none'}."
        )


def _remap_rows(
    name: str, old: np.ndarray[Any, Any], initial: np.ndarray[Any, Any], info: VocabInfo
) -> np.ndarray[Any, Any]:
    """Returns the old rows of words in the new vocabulary, and the backup initializer's for new words."""
    old_words = _words(name, info.old_vocab, None if info.old_vocab_size < 0 else info.old_vocab_size)
    new_words = _words(name, info.new_vocab, info.new_vocab_size)
    if info.axis >= initial.ndim or _without_axis(old.shape, info.axis) != _without_axis(initial.shape, info.axis):
        raise _misfit_error(name, f"the variable has shape {initial.shape}, and {old.shape} in the checkpoint")
    if initial.shape[info.axis] != len(new_words) + info.num_oov_buckets:
        buckets = f"{len(new_words)} words and {info.num_oov_buckets} buckets for unknown ones"
        raise _misfit_error(name, f"there are {buckets}, and the variable has shape {initial.shape}")
    if old.shape[info.axis] < len(old_words):
        raise _misfit_error(
            name, f"the old vocabulary has {len(old_words)} words, and the checkpoint shape {old.shape}"
        )
    indices = {word: index for index, word in enumerate(old_words)}
    kept = [(new, indices[word]) for new, word in enumerate(new_words) if word in indices]
    if info.backup_initializer is None:
        result = np.zeros(initial.shape, initial.dtype)
    else:
        result = np.array(info.backup_initializer(initial.shape, dtype=initial.dtype.name), initial.dtype)
    if kept:
        target, source = (np.array(column) for column in zip(*kept, strict=True))
        # Words along axis 0 in both: views, so that this writes into the result.
        np.moveaxis(result, info.axis, 0)[target] = np.moveaxis(old, info.axis, 0)[source]
    return result


def _without_axis(shape: tuple[int, ...], axis: int) -> tuple[int, ...] | None:
    """Returns a shape without one axis; `None` for a shape without axes."""
    return (*shape[:axis], *shape[axis + 1 :]) if axis < len(shape) else None


def _misfit_error(name: str, difference: str) -> ArgumentError:
    return ArgumentError(f"{name} cannot be warm-started by its VocabInfo: {difference}. Correct axis or sizes there.")


def _words(name: str, vocabulary: str | os.PathLike[str], size: int | None) -> list[bytes]:
    """Returns the first `size` words of a vocabulary, or all."""
    try:
        # Bytes: TensorFlow does not decode them, and files need not be UTF-8.
        words = Path(os.fsdecode(vocabulary)).read_bytes().splitlines()
    except OSError as error:
        raise DataNotFoundError(
            f"{name} cannot be warm-started: its vocabulary {vocabulary} cannot be read ({error})."
        ) from error
    selected = words if size is None else words[:size]
    if size is not None and len(selected) < size:
        raise _misfit_error(name, f"it speaks of {size} words, and {vocabulary} has {len(words)}")
    # Which of its rows were meant would be a guess.
    if len(set(selected)) < len(selected):
        raise _misfit_error(name, f"{vocabulary} has a word twice")
    return selected
