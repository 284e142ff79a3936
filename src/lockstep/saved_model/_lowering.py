"""Programs for any number of examples, and for several kinds of devices.

A function is traced with a symbol in the place of the number of examples, so that the program is exact for each number.
Where a function decides by that number ("more than one?"), one program is made for a single example, and one for more.
Nothing is padded, and nothing done for each example alone: for a function that looks at several examples, or whose
outputs are not one for each, that would be another function.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import export

from lockstep.errors import UnsupportedError
from lockstep.saved_model._function import SignatureFunction
from lockstep.saved_model._tracing import Range, Traced, has_batch, has_ties, traced

_Array = np.ndarray[Any, np.dtype[Any]]
_PLATFORMS = ("cpu", "cuda", "tpu")
_ANY = (Range(1, None),)
_ONE_OR_MORE = (Range(1, 1), Range(2, None))


@dataclass(frozen=True)
class Lowered:
    """A program.

    Attributes:
        exported: The program.
        range: For how many examples.
        left_out: For which platforms it could not be made, and why.
    """

    exported: export.Exported
    range: Range
    left_out: dict[str, str]


def lowered(name: str, signature: SignatureFunction, variables: Mapping[str, _Array]) -> tuple[Traced, list[Lowered]]:
    """Makes the programs of a signature; the last one is for most numbers of examples.

    Args:
        name: Of the signature.
        signature: What holds its function.
        variables: The variables, by name.

    Raises:
        UnsupportedError: If there is no program for any number of examples.
        Exception: Whatever the function raises for a known number of examples, too.
    """
    problem: Exception | None = None
    for ranges, tied in _attempts(signature):
        try:
            made = [(traced(signature, variables, wanted, tied), wanted) for wanted in ranges]
            programs = [_program(trace, wanted) for trace, wanted in made]
        except Exception as error:
            problem = problem or error
        else:
            return made[-1][0], programs
    assert problem is not None
    if not has_batch(signature):
        raise problem
    # Also with a known number? Then it is not the symbol's fault.
    _program(traced(signature, variables, Range(2, 2), has_ties(signature)), Range(2, 2))
    raise _needs_a_size(name, problem) from problem


def _attempts(signature: SignatureFunction) -> list[tuple[tuple[Range, ...], bool]]:
    """Returns which programs to try to make, and whether open sizes of different inputs are equal."""
    ties = (False, True) if has_ties(signature) else (False,)
    ranges = (_ANY, _ONE_OR_MORE) if has_batch(signature) else (_ANY,)
    return [(wanted, tied) for wanted in ranges for tied in ties]


def _needs_a_size(name: str, problem: Exception) -> UnsupportedError:
    return UnsupportedError(
        f"An export computes any number of examples with one program. Received for the signature {name!r} a function "
        f"that JAX cannot trace without knowing their number: {_first_line(problem)}. Compute with x.shape[0] only by "
        "functions of jax.numpy or keras.ops, do what is done for each example by jax.vmap, or fix the number of "
        "examples: default_batch_size=n for the receiver function, or a shape [n, ...]."
    )


def _program(trace: Traced, wanted: Range) -> Lowered:
    exported, left_out = _for_platforms(trace)
    if wanted.most is None:
        _check(exported, trace, wanted)
    return Lowered(exported, wanted, left_out)


def _for_platforms(trace: Traced) -> tuple[export.Exported, dict[str, str]]:
    here = export.default_export_platform()
    wanted = list(dict.fromkeys((here, *_PLATFORMS)))
    try:
        return _export(trace, wanted), {}
    except Exception:
        left_out = {platform: why for platform in wanted if (why := _why_not(trace, platform))}
    able = [platform for platform in wanted if platform not in left_out]
    return _export(trace, able if here in able else [here]), left_out


def _export(trace: Traced, platforms: list[str]) -> export.Exported:
    with _without_places():
        return export.export(trace.program, platforms=platforms)(trace.variables, trace.inputs)


@contextlib.contextmanager
def _without_places() -> Generator[None]:
    """While open, programs do not say where in the source code an operation comes from: paths are private."""
    option = "jax_traceback_in_locations_limit"
    before = getattr(jax.config, option)
    jax.config.update(option, 0)
    try:
        yield
    finally:
        jax.config.update(option, before)


def _why_not(trace: Traced, platform: str) -> str | None:
    try:
        _export(trace, [platform])
    except Exception as error:
        return _first_line(error)
    return None


def _check(exported: export.Exported, trace: Traced, wanted: Range) -> None:
    """Compiles a program for some sizes: only then JAX finds out that some operations do not know theirs."""
    size = max(2, wanted.least)
    sizes = lambda shape: tuple(d if isinstance(d, int) else size for d in shape)  # noqa: E731
    inputs = {path: jax.ShapeDtypeStruct(sizes(s.shape), s.dtype) for path, s in trace.inputs.items()}
    jax.jit(exported.call).lower(trace.variables, inputs).compile()


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}".removesuffix(".")
