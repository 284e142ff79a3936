"""What the tasks settle before and during a run of a model."""

from __future__ import annotations

from typing import Any, Protocol

from lockstep._runtime import randomness
from lockstep._runtime.runtime import Runtime

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


def begin_run(runtime: Runtime, call: str, state: Shared, facts: dict[str, Any], chief: Any = None) -> Any:
    """Compares the call and the model, and starts everyone from the chief's weights and random state.

    Args:
        runtime: Who takes part.
        call: The method, such as "fit".
        state: The model's.
        facts: Arguments that must be equal.
        chief: A value that all tasks take over from the chief.

    Returns:
        The chief's `chief`.

    Raises:
        MismatchError: On every task, if they differ in call, facts, the model's variables, or in which of its steps
            were compiled: a task that compiles alone would wait for the others to compare its program with theirs.
    """
    if runtime.is_alone:
        return chief
    mine = {"chief": chief, "random": randomness.snapshot()} if runtime.is_chief else None
    told = {"facts": facts, "model": state.digest(), "compiled": state.compiled()}
    answers = runtime.agree(call, {**told, "changed": state.has_changed(), "first": mine})
    runtime.demand_equal(f"arguments of {call}", [a["facts"] for a in answers], _ADVICE)
    if len({a["model"] for a in answers}) > 1:
        runtime.demand_same("variables of the model", state.signature(), _ADVICE)
    runtime.demand_equal(f"steps compiled for {call}", [a["compiled"] for a in answers], _COMPILED_ADVICE)
    if any(a["changed"] for a in answers):
        state.follow_chief()
    randomness.restore(answers[0]["first"]["random"])
    return answers[0]["first"]["chief"]


def begin_epoch(runtime: Runtime, epoch: int, state: Shared) -> None:
    """Makes sure that callbacks changed the same variables on all tasks, and that all shuffle alike.

    Raises:
        MismatchError: On every task, if a variable was changed on some of them only.
    """
    if runtime.is_alone:
        return
    random = randomness.snapshot() if runtime.is_chief else None
    answers = runtime.agree(f"epoch {epoch}", {"changes": state.changes(), "random": random})
    runtime.demand_equal(
        "changes to variables by callbacks",
        [a["changes"] for a in answers],
        f"Seen at the start of epoch {epoch}. A callback that changes weights or the learning rate must do so on "
        "every task; one that must act on the chief only must not change the model.",
    )
    randomness.restore(answers[0]["random"])


def anyone(runtime: Runtime, topic: str, vote: bool) -> bool:
    """Whether any task votes yes."""
    return any(runtime.agree(topic, vote))
