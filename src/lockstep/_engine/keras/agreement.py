"""What the tasks settle before and during a run of a model."""

from __future__ import annotations

from typing import Any, Protocol

from lockstep._engine.input import random_state, samples
from lockstep._engine.input.samples import Sample
from lockstep._engine.runtime.runtime import Runtime

_ADVICE = "Every task must run the same program with the same settings."

_COMPILED_ADVICE = (
    "One worker has compiled anew, and another has not. Call model.compile, and give callbacks such as NonFinite, on "
    "every worker or on none."
)


class Shared(Protocol):
    """What all tasks train, each with a copy."""

    def signature(self) -> dict[str, str]:
        """Name, dtype and shape of each array."""
        ...

    def digest(self) -> str:
        """A short text that is equal if and only if the signatures are."""
        ...

    def compiled(self) -> list[str]:
        """A short digest of each step that was compiled for it before; equal on all tasks."""
        ...

    def has_changed(self) -> bool:
        """Whether there may be values that the others do not have."""
        ...

    def follow_chief(self, everything: bool = False) -> None:
        """Makes the chief's values everyone's, on all tasks at once; those of metrics only if `everything`."""
        ...

    def changes(self) -> int:
        """A checksum of the values that were given since the last call, other than by steps."""
        ...


class Data(Protocol):
    """Data that each task passes whole."""

    def facts(self) -> dict[str, Any]:
        """Returns what must be equal on all tasks before the first batch, as JSON."""
        ...

    def sample(self, number: int) -> Sample | None:
        """A sample of what is in memory, to be equal on all tasks; another one for each number."""
        ...


def begin_run(
    runtime: Runtime,
    call: str,
    state: Shared,
    facts: dict[str, Any],
    data: Data | None = None,
    chief: Any = None,
) -> Any:
    """Compares the call, its data and the model, and starts everyone from the chief's weights and random state.

    Args:
        runtime: Who takes part.
        call: The method, such as "fit".
        state: The model's.
        facts: Arguments that must be equal.
        data: What is read, if anything is.
        chief: A value that all tasks take over from the chief.

    Returns:
        The chief's `chief`.

    Raises:
        MismatchError: On every task, if they differ in call, facts, data, the model's variables, or in which of its
            steps were compiled: a task that compiles alone would wait for the others to compare its program with
            theirs.
    """
    if runtime.is_alone:
        return chief
    first = {"chief": chief, "random": random_state.snapshot()} if runtime.is_chief else None
    sample = None if data is None else data.sample(0)
    mine = {"facts": facts, "model": state.digest(), "compiled": state.compiled(), "changed": state.has_changed()}
    found = {"data": data and data.facts(), "checksum": sample and sample.checksum}
    answers = runtime.all_gather_object(call, {**mine, **found, "first": first})
    runtime.check_equal(f"arguments of {call}", [a["facts"] for a in answers], _ADVICE)
    _demand_same_data(runtime, call, [a["data"] or {} for a in answers])
    _demand_same_values(runtime, call, sample, answers)
    if len({a["model"] for a in answers}) > 1:
        runtime.check_same("variables of the model", state.signature(), _ADVICE)
    runtime.check_equal(f"steps compiled for {call}", [a["compiled"] for a in answers], _COMPILED_ADVICE)
    if any(a["changed"] for a in answers):
        state.follow_chief()
    random_state.restore(answers[0]["first"]["random"])
    return answers[0]["first"]["chief"]


def begin_epoch(runtime: Runtime, epoch: int, state: Shared, data: Data) -> None:
    """Makes sure that callbacks changed the same variables on all tasks, and that all shuffle the same data alike.

    Raises:
        MismatchError: On every task, if a variable was changed on some of them only, or data in memory differ.
    """
    if runtime.is_alone:
        return
    random = random_state.snapshot() if runtime.is_chief else None
    sample = data.sample(epoch + 1)
    mine = {"changes": state.changes(), "random": random, "checksum": sample and sample.checksum}
    answers = runtime.all_gather_object(f"epoch {epoch}", mine)
    runtime.check_equal(
        "changes to variables by callbacks",
        [a["changes"] for a in answers],
        f"Seen at the start of epoch {epoch}. A callback that changes weights or the learning rate must do so on "
        "every task; one that must act on the chief only must not change the model.",
    )
    _demand_same_values(runtime, f"epoch {epoch}", sample, answers)
    random_state.restore(answers[0]["random"])


def _demand_same_data(runtime: Runtime, call: str, facts: list[dict[str, Any]]) -> None:
    """Compares what data look like; arrays and a generator have nothing else in common to compare."""
    for compared in ([{"kind": f.get("kind")} for f in facts], facts):
        runtime.check_equal(f"data of {call}", compared, samples.ADVICE)


def _demand_same_values(runtime: Runtime, call: str, sample: Sample | None, answers: list[dict[str, Any]]) -> None:
    if samples.differ([a["checksum"] for a in answers]):
        raise samples.mismatch(f"the data of {call}", sample, runtime.all_gather_object, runtime.tasks)


def anyone(runtime: Runtime, topic: str, vote: bool) -> bool:
    """Whether any task votes yes."""
    return any(runtime.all_gather_object(topic, vote))
