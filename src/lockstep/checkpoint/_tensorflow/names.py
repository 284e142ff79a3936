"""Names of variables: those that TensorFlow's programs give them, for those that the same programs give them here.

Variables of layers, and of TensorFlow 1's optimizers, have one name in both. Keras 3 keeps what an optimizer knows of a
variable as `adam/dense_kernel_momentum`; in TensorFlow that is `Adam/dense/kernel/m` (Keras 2's first optimizers, in an
Estimator under `training/`) or `Adam/m/dense/kernel` (those of 2.11 and later).

Source: keras/optimizers/legacy/optimizer_v2.py and keras/optimizers/optimizer.py of Keras 2.15.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

# Keras 3's name of a slot: those of Keras 2, both kinds of optimizers. Which of them an optimizer has, it has alone.
SLOTS: Mapping[str, tuple[str, ...]] = {
    "momentum": ("m", "momentum"),
    "velocity": ("v", "rms", "velocity"),
    "velocity_hat": ("vhat",),
    "average_gradient": ("mg", "average_gradient"),
    "accumulator": ("accumulator",),
    "linear": ("linear",),
    "accumulated_grad": ("accum_grad", "accumulated_grad"),
    "accumulated_delta_var": ("accum_var", "accumulated_delta_var"),
    "m": ("m",),
    # Adamax: its infinity norm was called as Adam's second moment.
    "u": ("u", "v"),
}
OPTIMIZERS = frozenset(
    ("adadelta", "adafactor", "adagrad", "adam", "adamax", "adamw", "ftrl", "lion", "nadam", "rmsprop", "sgd")
)
ITERATION = "iteration"
RATE = "learning_rate"
# What an optimizer has once.
SCALARS: Mapping[str, tuple[str, ...]] = {
    ITERATION: ("iter", "iteration"),
    RATE: ("learning_rate",),
    "u_product": ("momentum_cache", "u_product"),
}
GLOBAL_STEP = "global_step"
# Numbers that TensorFlow saved as variables, and that are arguments of the program here.
_ARGUMENTS = frozenset(
    (
        *("beta", "beta_1", "beta_2", "decay", "epsilon", "l1_regularization_strength", "l2_regularization_strength"),
        *("learning_rate", "learning_rate_power", "momentum", "rho", "iter", "save_counter"),
    )
)
# TensorFlow 1's canned Estimators make variables in one piece by a partitioner, whose number their slots have.
_PIECES = ("t_0", "part_0")


@dataclass(frozen=True)
class Names:
    """Holds what was found for the variables of a program in a checkpoint of TensorFlow.

    Attributes:
        found: The name there, by the one here.
        missing: Names here that nothing there stands for.
        arguments: Names there of numbers that are arguments of the program here.
        left_over: Other names there that nothing here takes.
    """

    found: Mapping[str, str]
    missing: list[str]
    arguments: list[str]
    left_over: list[str]


def find_names(keys: Collection[str], names: Collection[str]) -> Names:
    """Returns which variable of TensorFlow's checkpoint each variable of a program is.

    Args:
        keys: The names here.
        names: The names there, as programs know them.
    """
    by_end = _by_last_parts(names)
    variables = _once({key: name for key in keys if (name := _plain(key, names)) is not None})
    found = dict(variables)
    for key in keys:
        candidates = [] if key in found else list(_of_optimizers(key, variables, names, by_end))
        if len(candidates) == 1:
            found[key] = candidates[0]
    left = [name for name in sorted(names) if name not in set(found.values())]
    arguments = [name for name in left if name.rpartition("/")[2] in _ARGUMENTS]
    missing = [key for key in keys if key not in found]
    return Names(found, missing, arguments, [name for name in left if name not in arguments])


def _plain(key: str, names: Collection[str]) -> str | None:
    """Returns the name there of a variable that is named alike, or `None`."""
    if key in names:
        return key
    owner, _, slot = key.rpartition("/")
    for piece in _PIECES:
        if (name := f"{owner}/{piece}/{slot}") in names:
            return name
    # Keras 3 puts the model's name before that of its layer, Keras 2 does not.
    parts = key.split("/")
    return next((name for i in range(1, len(parts) - 1) if (name := "/".join(parts[i:])) in names), None)


def _once(found: dict[str, str]) -> dict[str, str]:
    """Returns the pairs whose name there stands for one variable here."""
    counts = Counter(found.values())
    return {key: name for key, name in found.items() if counts[name] == 1 or key == name}


def _of_optimizers(
    key: str, variables: Mapping[str, str], names: Collection[str], by_end: Mapping[str, list[str]]
) -> Iterator[str]:
    owner, _, slot = key.rpartition("/")
    optimizer = owner.rpartition("/")[2]
    if slot in SCALARS:
        yield from _scalars(slot, optimizer, names)
    else:
        yield from _of_optimizer(optimizer, dict.fromkeys(_slots(slot, variables, by_end)))


def _scalars(slot: str, optimizer: str, names: Collection[str]) -> Iterator[str]:
    ends = SCALARS[slot]
    # Optimizers of Keras 2.11 and later save theirs without their own name, which only one of them can do.
    found = _of_optimizer(optimizer, dict.fromkeys(n for n in names if n.rpartition("/")[2] in ends))
    if found:
        yield from found
    elif slot == ITERATION and GLOBAL_STEP in names:
        # Estimators let an optimizer count by the global step, which is saved once.
        yield GLOBAL_STEP


def _slots(last: str, variables: Mapping[str, str], by_end: Mapping[str, list[str]]) -> Iterator[str]:
    """Yields names there of what an optimizer keeps of a variable under `last`, such as "dense_kernel_momentum"."""
    for variable, there in variables.items():
        slot = last.removeprefix(f"{variable.replace('/', '_')}_")
        if slot == last:
            continue
        for name in SLOTS.get(slot, (slot,)):
            yield from by_end.get(f"{there}/{name}", ())
            yield from by_end.get(f"{name}/{there}", ())


def _of_optimizer(optimizer: str, names: Iterable[str]) -> list[str]:
    """Returns the names that have an optimizer's among their parts; if none has, those that have no other one's."""
    # Keras 2 says "Adam", Keras 3 "adam".
    parts = {name: name.casefold().split("/") for name in names}
    own = [name for name, found in parts.items() if optimizer.casefold() in found]
    # A momentum of Adam's is none of SGD's; programs may have called their optimizer anything else.
    return own or [name for name, found in parts.items() if not OPTIMIZERS.intersection(found)]


def _by_last_parts(names: Iterable[str]) -> dict[str, list[str]]:
    """Returns names by what follows any of their slashes."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        parts = name.split("/")
        for start in range(1, len(parts)):
            found["/".join(parts[start:])].append(name)
    return found
