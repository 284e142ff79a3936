"""Compares what workers have before and during a run of a model, and takes over what is the chief's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from lockstep._engine.input import random_state, samples
from lockstep._engine.input.samples import Sample
from lockstep._engine.runtime.runtime import Runtime

_ADVICE = "Every task must run the same program with the same settings."

_COMPILED_ADVICE = (
    "One worker has compiled anew, and another has not. Call model.compile, and give callbacks such as NonFinite, on "
    "every worker or on none."
)


class TrainState(Protocol):
    """Variables that all workers train, each with a copy."""

    def signature(self) -> dict[str, str]:
        """Returns name, dtype and shape of each array."""
        ...

    def digest(self) -> str:
        """Returns a short text that is equal if and only if the signatures are."""
        ...

    def compiled(self) -> list[str]:
        """Returns a short digest of each step that was compiled for it before; equal on all workers."""
        ...

    def has_changed(self) -> bool:
        """Returns whether there may be values that the other workers do not have."""
        ...

    def follow_chief(self, everything: bool = False) -> None:
        """Broadcasts the chief's values, a collective call; those of metrics only if `everything`."""
        ...

    def changes(self) -> int:
        """Returns a checksum of the values that were set since the last call, other than by steps."""
        ...

    def arrays(self, starts: tuple[str, ...] = ("",)) -> dict[str, Any]:
        """Returns this process' copies by name, of names that begin with one of `starts`; a collective call."""
        ...

    def assign(self, arrays: Mapping[str, Any]) -> None:
        """Sets the values that `arrays` returned."""
        ...


class Data(Protocol):
    """Data that each worker passes whole."""

    def facts(self) -> dict[str, Any]:
        """Returns what must be equal on all workers before the first batch, as JSON."""
        ...

    def sample(self, number: int) -> Sample | None:
        """Returns a sample of what is in memory, to be equal on all workers; another one for each number."""
        ...


def begin_run(
    runtime: Runtime,
    call: str,
    state: TrainState,
    facts: dict[str, Any],
    data: Data | None = None,
    chief: Any = None,
) -> Any:
    """Compares the call, its data and the model, and starts all workers from the chief's weights and random state.

    Args:
        runtime: The workers.
        call: The method, such as "fit".
        state: The model's.
        facts: Arguments that must be equal.
        data: The data, if any are read.
        chief: A value that all workers take over from the chief.

    Returns:
        The chief's `chief`.

    Raises:
        MismatchError: On every worker, if they differ in call, facts, data, the model's variables, or in which of its
            steps were compiled: a worker that compiles alone would wait for the others to compare its program with
            theirs.
    """
    if runtime.is_alone:
        return chief
    sample = None if data is None else data.sample(0)
    # One message for everything: each round trip between workers delays the first step.
    answers = runtime.all_gather_object(
        call,
        {
            "facts": facts,
            "model": state.digest(),
            "compiled": state.compiled(),
            "changed": state.has_changed(),
            "data": data and data.facts(),
            "checksum": sample and sample.checksum,
            "first": {"chief": chief, "random": random_state.snapshot()} if runtime.is_chief else None,
        },
    )
    runtime.check_equal(f"arguments of {call}", [a["facts"] for a in answers], _ADVICE)
    # The kind first: arrays and a generator have nothing else in common to compare.
    data_facts = [a["data"] or {} for a in answers]
    for compared in ([{"kind": f.get("kind")} for f in data_facts], data_facts):
        runtime.check_equal(f"data of {call}", compared, samples.ADVICE)
    _check_same_values(runtime, call, sample, answers)
    # Only the digests travel; the signatures follow where they differ, to name the first difference.
    if len({a["model"] for a in answers}) > 1:
        runtime.check_same("variables of the model", state.signature(), _ADVICE)
    runtime.check_equal(f"steps compiled for {call}", [a["compiled"] for a in answers], _COMPILED_ADVICE)
    # A second evaluate, or a fit after a fit, has nothing to broadcast.
    if any(a["changed"] for a in answers):
        state.follow_chief()
    random_state.restore(answers[0]["first"]["random"])
    return answers[0]["first"]["chief"]


def begin_epoch(runtime: Runtime, epoch: int, state: TrainState, data: Data) -> None:
    """Checks that callbacks changed the same variables on all workers, and that all shuffle the same data alike.

    Raises:
        MismatchError: On every worker, if a variable was changed on some of them only, or data in memory differ.
    """
    if runtime.is_alone:
        return
    # Callbacks of one worker may have drawn random numbers; the order of the data must not depend on that.
    random = random_state.snapshot() if runtime.is_chief else None
    # Number 0 was compared by begin_run.
    sample = data.sample(epoch + 1)
    mine = {"changes": state.changes(), "random": random, "checksum": sample and sample.checksum}
    answers = runtime.all_gather_object(f"epoch {epoch}", mine)
    runtime.check_equal(
        "changes to variables by callbacks",
        [a["changes"] for a in answers],
        f"Seen at the start of epoch {epoch}. A callback that changes weights or the learning rate must do so on "
        "every task; one that must act on the chief only must not change the model.",
    )
    _check_same_values(runtime, f"epoch {epoch}", sample, answers)
    random_state.restore(answers[0]["random"])


def _check_same_values(runtime: Runtime, call: str, sample: Sample | None, answers: list[dict[str, Any]]) -> None:
    if samples.differ([a["checksum"] for a in answers]):
        raise samples.mismatch(f"the data of {call}", sample, runtime.all_gather_object, runtime.tasks)
