r"""The file `checkpoint` of a directory, which lists its checkpoints and names the newest.

Its text is protocol buffers' text format, as TensorFlow writes and reads it:

    model_checkpoint_path: "model.ckpt-120"
    all_model_checkpoint_paths: "model.ckpt-100"
    all_model_checkpoint_paths: "model.ckpt-120"
    all_model_checkpoint_timestamps: 1760000000.25
    all_model_checkpoint_timestamps: 1760000600.5
    last_preserved_timestamp: 1760000000.0

Text is bytes there, of which those that are not printable ASCII are written as escapes, such as `\303`.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lockstep.checkpoint import _atomic
from lockstep.checkpoint._names import path_of
from lockstep.errors import ArgumentError

_log = logging.getLogger("lockstep")

_DEFAULT_NAME = "checkpoint"
_NEWEST = "model_checkpoint_path"
_ALL = "all_model_checkpoint_paths"
_TIMES = "all_model_checkpoint_timestamps"
_PRESERVED = "last_preserved_timestamp"


@dataclass(frozen=True)
class CheckpointState:
    """Contents of the file `checkpoint` of a directory.

    Attributes:
        model_checkpoint_path: The newest checkpoint.
        all_model_checkpoint_paths: All that were not removed, from the oldest to the newest; without those that are
            kept for ever.
        all_model_checkpoint_timestamps: When each was saved, in seconds since the epoch; or empty.
        last_preserved_timestamp: Since when the time counts until the next one is kept for ever, or `None`.

    Source: `CheckpointState` of `tf.train.get_checkpoint_state`.
    """

    model_checkpoint_path: str
    all_model_checkpoint_paths: Sequence[str] = ()
    all_model_checkpoint_timestamps: Sequence[float] = ()
    last_preserved_timestamp: float | None = None


def state_file(directory: str | os.PathLike[str], latest_filename: str | None = None) -> str:
    """Returns the path of the file."""
    return os.path.join(path_of(directory), latest_filename or _DEFAULT_NAME)


def read_state(directory: str, latest_filename: str | None = None) -> CheckpointState:
    """Reads the file; relative paths in it count from its directory.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is damaged.
    """
    with open(state_file(directory, latest_filename), "rb") as file:
        found = list(_parse_fields(file.read()))
    # The last one counts where a field is repeated, as in protocol buffers.
    newest, paths = _texts(found, _NEWEST), _texts(found, _ALL)
    if not newest or not newest[-1]:
        raise ValueError(f"it has no {_NEWEST}")
    preserved = _numbers(found, _PRESERVED)
    return CheckpointState(
        os.path.join(directory, newest[-1]),
        [os.path.join(directory, path) for path in paths],
        _numbers(found, _TIMES),
        preserved[-1] if preserved else None,
    )


def write_state(directory: str, state: CheckpointState, latest_filename: str | None = None) -> None:
    """Writes the file, durably; paths inside of its directory become relative, so that it can be moved.

    Raises:
        OSError: If it cannot be written; then it is unchanged.
    """
    lines = [_line(_NEWEST, _relative(state.model_checkpoint_path, directory))]
    lines += [_line(_ALL, _relative(path, directory)) for path in state.all_model_checkpoint_paths]
    lines += [_line(_TIMES, float(time)) for time in state.all_model_checkpoint_timestamps]
    if state.last_preserved_timestamp is not None:
        lines.append(_line(_PRESERVED, float(state.last_preserved_timestamp)))
    with _atomic.replacing(state_file(directory, latest_filename)) as file:
        file.write("".join(lines).encode("ascii"))


def get_checkpoint_state(
    checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None
) -> CheckpointState | None:
    """Reads the file that says which checkpoints a directory has.

    Args:
        checkpoint_dir: The directory.
        latest_filename: The name of the file. Default: `checkpoint`.

    Returns:
        What it says, with paths that begin with `checkpoint_dir` unless the file's are absolute; or `None` if it is not
        there or cannot be read (with a warning in the log).

    Source: `tf.train.get_checkpoint_state`.
    """
    directory = path_of(checkpoint_dir)
    try:
        return read_state(directory, latest_filename)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        _log.warning("%s: %s", type(error).__name__, error)
        _log.warning("%s: Checkpoint ignored", state_file(directory, latest_filename))
        return None


def update_checkpoint_state(
    save_dir: str | os.PathLike[str],
    model_checkpoint_path: str,
    all_model_checkpoint_paths: Iterable[str] | None = None,
    latest_filename: str | None = None,
    all_model_checkpoint_timestamps: Iterable[float] | None = None,
    last_preserved_timestamp: float | None = None,
) -> None:
    """Writes the file that says which checkpoints a directory has.

    Args:
        save_dir: The directory.
        model_checkpoint_path: The newest checkpoint; a relative path counts from where the process runs, or from
            `save_dir` if that is absolute.
        all_model_checkpoint_paths: All that are there, from the oldest to the newest, which is added if missing.
            Default: the newest alone.
        latest_filename: The name of the file. Default: `checkpoint`.
        all_model_checkpoint_timestamps: When each was saved, in seconds since the epoch. Default: unknown.
        last_preserved_timestamp: When one was last kept for ever, in seconds since the epoch. Default: unknown.

    Raises:
        ArgumentError: If the numbers of paths and timestamps differ, or the checkpoint is called like the file.
        OSError: If it cannot be written.

    Source: `tf.compat.v1.train.update_checkpoint_state`. Paths inside of `save_dir` are always written as relative.
    """
    directory = path_of(save_dir)
    paths = list(all_model_checkpoint_paths or ())
    if not paths or paths[-1] != model_checkpoint_path:
        _log.info("%s is not in all_model_checkpoint_paths. Manually adding it.", model_checkpoint_path)
        paths.append(model_checkpoint_path)
    times = list(all_model_checkpoint_timestamps or ())
    if times and len(times) != len(paths):
        raise ArgumentError(
            f"Each checkpoint has one timestamp; there are {len(times)} timestamps and {len(paths)} checkpoints. Pass "
            "as many, or none."
        )
    newest, *others = [_from(directory, path) for path in (model_checkpoint_path, *paths)]
    if os.path.abspath(newest) == os.path.abspath(state_file(directory, latest_filename)):
        raise ArgumentError(f"A checkpoint cannot be called like the file that lists it, {newest!r}. Rename one.")
    write_state(directory, CheckpointState(newest, others, times, last_preserved_timestamp), latest_filename)


def _from(directory: str, path: str) -> str:
    # TensorFlow's rule: a relative path counts from an absolute directory, else from where the process runs.
    return os.path.join(directory, path) if os.path.isabs(directory) else path


def _relative(path: str, directory: str) -> str:
    # As TensorFlow does, so that a directory may be moved; paths outside of it stay absolute.
    relative = os.path.relpath(path, directory or ".")
    return os.path.abspath(path) if relative.split(os.sep)[0] == os.pardir else relative


def _texts(found: list[tuple[str, str | float]], name: str) -> list[str]:
    return [value for field, value in found if field == name and isinstance(value, str)]


def _numbers(found: list[tuple[str, str | float]], name: str) -> list[float]:
    return [value for field, value in found if field == name and isinstance(value, float)]


# r"""The text of the file `checkpoint`: protocol buffers' text format, as TensorFlow writes and reads it.
#
#     model_checkpoint_path: "model.ckpt-120"
#     all_model_checkpoint_paths: "model.ckpt-100"
#     all_model_checkpoint_paths: "model.ckpt-120"
#     all_model_checkpoint_timestamps: 1760000000.25
#     all_model_checkpoint_timestamps: 1760000600.5
#     last_preserved_timestamp: 1760000000.0
#
# Text is bytes there, of which those that are not printable ASCII are written as escapes, such as `\303`.
# """


_QUOTED = r"""(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
# A name, and adjacent strings (which are one, as in C) or a number; separators are optional.
_FIELD = re.compile(rf"(\w+)\s*:\s*((?:{_QUOTED}\s*)+|[-+.\w]+)\s*[,;]?")
_BLANK = re.compile(r"(?:\s|#[^\n]*)*")
_ESCAPE = re.compile(r"\\([0-7]{1,3}|[xX][0-9a-fA-F]{1,2}|.)")
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def _line(name: str, value: str | float) -> str:
    """Returns the line of one field."""
    if not isinstance(value, str):
        return f"{name}: {float(value)!r}\n"
    return f'{name}: "{"".join(map(_escape, os.fsencode(value)))}"\n'


def _parse_fields(text: bytes) -> Iterator[tuple[str, str | float]]:
    """Yields the fields of a text in order: its name, and text or a number.

    Raises:
        ValueError: If the text is no such format.
    """
    # Each byte is one character, so that escapes and raw bytes mean the same.
    source = text.decode("latin-1")
    position = _skip_blank(source, 0)
    while position < len(source):
        found = _FIELD.match(source, position)
        if found is None:
            raise ValueError(f"line {source.count(chr(10), 0, position) + 1} is not 'name: \"text\"' or 'name: number'")
        yield found[1], _value(found[2])
        position = _skip_blank(source, found.end())


def _skip_blank(source: str, position: int) -> int:
    found = _BLANK.match(source, position)
    return found.end() if found else position


def _value(text: str) -> str | float:
    if text[0] not in "\"'":
        return float(text)
    parts = [_ESCAPE.sub(_unescape, part[1:-1]) for part in re.findall(_QUOTED, text)]
    return os.fsdecode("".join(parts).encode("latin-1"))


def _unescape(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] in "01234567":
        return chr(int(code, 8) & 0xFF)
    return chr(int(code[1:], 16)) if len(code) > 1 else _LETTERS.get(code, code)


def _escape(byte: int) -> str:
    if byte in b"\"'\\":
        return f"\\{byte:c}"
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}"
