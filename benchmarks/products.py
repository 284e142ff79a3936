"""Compares lockstep's kernels in C with XLA's own, over grids of shapes, in one process and in turn.

python benchmarks/products.py             products and updates; exit status 1 if a case that training uses is slower
python benchmarks/products.py --quick     some of them
python benchmarks/products.py --keep      writes results/products.md

Each case runs in a loop of one compiled program, as steps do, in rounds like those of `lowerings.py`. Leave the machine
alone meanwhile.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The checkout, not this directory, is where modules are looked for.
_ROOT = Path(__file__).resolve().parents[1]
sys.path[0:1] = [str(_ROOT), str(_ROOT / "src")]

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

from benchmarks.grids.compared import ALLOWED, compared  # noqa: E402
from benchmarks.harness.machine import machine, now  # noqa: E402
from lockstep._native import calls  # noqa: E402
from lockstep._step.native import with_native_kernels  # noqa: E402
from lockstep._step.recorded import record  # noqa: E402
from lockstep._xla import in_place  # noqa: E402

Step = Callable[[Any, Any], tuple[Any, Any]]
# Of one step, us: what is less cannot be told from noise.
_NOISE = 1.0
# How long a round takes at least, and all rounds of a case.
_ROUND_SECONDS, _SECONDS = 4e-3, 0.15
_RATE = 1e-3


@dataclass(frozen=True)
class Case:
    """A step, and what it begins with.

    Attributes:
        name: For the table.
        step: `(state, batch) -> (outputs, state)`.
        shapes: Of the state's arrays.
        seconds: About how long it takes.
    """

    name: str
    step: Step
    shapes: tuple[tuple[int, ...], ...]
    seconds: float

    def state(self) -> tuple[jax.Array, ...]:
        """Positive numbers, so that an optimizer's roots are real."""
        random = np.random.default_rng(0)
        return tuple(jnp.asarray(abs(random.standard_normal(shape, "float32")) / 10) for shape in self.shapes)


def cases(quick: bool) -> Iterator[Case]:
    """Yields products and updates of the sizes of dense layers."""
    layers = (
        (64, 64),
        (128, 128),
        (256, 256),
        (784, 256),
        (512, 512),
        (1024, 1024),
        (250, 250),
        (256, 10),
        (2048, 256),
    )
    for rows, (inputs, outputs) in itertools.product((32, 64) if quick else (8, 16, 32, 48, 64, 128, 256, 512), layers):
        seconds = 2 * rows * inputs * outputs / 1e11 + 5e-6
        name = f"{rows} rows, {inputs} to {outputs}"
        yield Case(f"forward, {name}", _forward, ((rows, inputs), (inputs, outputs)), seconds)
        yield Case(f"gradient of the input, {name}", _backward, ((rows, outputs), (inputs, outputs)), seconds)
        for kind, (update, arrays) in _UPDATES.items():
            shapes = ((rows, inputs), (rows, outputs), *[(inputs, outputs)] * arrays)
            yield Case(f"{kind}, {name}", _training(update), shapes, seconds + arrays * inputs * outputs * 1e-10)


def _forward(state: Any, batch: Any) -> Any:
    x, kernel = state
    return (), (_after(x, x @ kernel), kernel)


def _backward(state: Any, batch: Any) -> Any:
    gradient, kernel = state
    return (), (_after(gradient, gradient @ kernel.T), kernel)


def _training(update: Callable[..., Any]) -> Step:
    def step(state: Any, batch: Any) -> Any:
        x, gradient, *arrays = state
        arrays = update(lax.dot_general(gradient, x, (((0,), (0,)), ((), ()))).T, *arrays)
        return (), (_after(x, arrays[0]), gradient, *arrays)

    return step


def _after(operand: jax.Array, result: jax.Array) -> jax.Array:
    """The operand for the next round, which must wait for this one's result."""
    return operand.at[0, 0].set(result[0, 0] * 1e-9)


def _sgd(gradient: Any, kernel: Any) -> Any:
    return (kernel - _RATE * gradient,)


def _momentum(gradient: Any, kernel: Any, velocity: Any) -> Any:
    velocity = 0.9 * velocity - _RATE * gradient
    return kernel + velocity, velocity


def _adam(gradient: Any, kernel: Any, first: Any, second: Any) -> Any:
    first, second = first + (gradient - first) * 0.1, second + (gradient * gradient - second) * 0.001
    return kernel - _RATE * first / (jnp.sqrt(second) + 1e-7), first, second


_UPDATES = {"SGD": (_sgd, 1), "momentum": (_momentum, 2), "Adam": (_adam, 3)}


def main() -> int:
    """Measures, prints a table, and returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="some cases only")
    parser.add_argument("--keep", action="store_true", help="write results/products.md")
    options = parser.parse_args()
    if not calls.are_there():
        print("There is no C compiler here (CC, cc, gcc, clang), or the processor has no AVX2: nothing to compare.")
        return 1
    lines, slower = ["| XLA us | lockstep us | ratio | case |", "|---|---|---|---|"], list[str]()
    print(*lines, sep="\n")
    for case in cases(options.quick):
        found = _measured(case)
        if found is not None:
            own, ours, ratio = found
            lines.append(f"| {own:.1f} | {ours:.1f} | {ratio:.2f} | {case.name} |")
            print(lines[-1], flush=True)
            slower += [case.name] * (ratio > ALLOWED and ours - own > _NOISE)
    print(f"\n{len(slower)} case(s) more than {ALLOWED - 1:.0%} slower than XLA's own", *slower, sep="\n")
    if options.keep:
        where = machine()
        said = (
            f"lockstep's kernels in C beside XLA's own: `python benchmarks/products.py --keep`, {now()}, "
            f"{where['cores']} cores of {where['processor']}, jax {jax.__version__}. These sizes use them."
        )
        (_ROOT / "benchmarks/results/products.md").write_text("\n".join([said, "", *lines, ""]), encoding="utf-8")
    return 1 if slower else 0


def _measured(case: Case) -> tuple[float, float, float] | None:
    """Medians of XLA's and lockstep's us of a step, and of their ratio; `None` where lockstep leaves it to XLA."""
    state = case.state()
    native = with_native_kernels(record(case.step, state, ()), state)
    if native is None:
        return None
    steps = max(20, int(_ROUND_SECONDS / case.seconds))
    own, ours, ratio = compared((_looped(case.step, steps), _looped(native, steps)), (state,), _SECONDS)
    return own / steps * 1e3, ours / steps * 1e3, ratio


def _looped(step: Step, steps: int) -> Callable[[Any], Any]:
    return jax.jit(
        lambda state: lax.fori_loop(0, steps, lambda _, s: step(s, ())[1], state),
        compiler_options=in_place.compiler_options("cpu"),
    )


if __name__ == "__main__":
    sys.exit(main())
