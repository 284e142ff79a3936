"""The base class of hooks, and the values it exchanges with the loop.

Source: tensorflow/python/training/session_run_hook.py.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

from lockstep.errors import UnsupportedError
from lockstep.estimator._types import Hook, Session

GLOBAL_STEP = "global_step"


@dataclass(frozen=True)
class SessionRunArgs:
    """A hook's request for values of the next step.

    Args:
        fetches: Any structure of names, such as "global_step" and "loss", of variables, and, in hooks that a model_fn
            makes, of values of the model_fn.
        feed_dict: Must be None.
        options: Must be None.
        raw: Whether results come as JAX arrays, which need not be computed yet, instead of numpy arrays.

    Source: tf.compat.v1.train.SessionRunArgs.

    Raises:
        UnsupportedError: If a step is to be fed, or TensorFlow's options are given.
    """

    fetches: Any
    feed_dict: Any = None
    options: Any = None
    raw: bool = False

    def __post_init__(self) -> None:
        if self.feed_dict is not None:
            raise UnsupportedError(
                "Nothing can be fed into a step from outside: SessionRunArgs received a feed_dict. Give the value "
                "together with the features, in the input_fn."
            )
        if self.options is not None:
            raise UnsupportedError(
                f"Options are for TensorFlow's sessions: SessionRunArgs received options={self.options!r}. To look at "
                "a step, use ProfilerHook."
            )


# Most hooks ask for the step and nothing else, around each step: they share one frozen request.
GLOBAL_STEP_ARGS = SessionRunArgs(GLOBAL_STEP)


class SessionRunValues(NamedTuple):
    """The values that a hook has requested.

    Attributes:
        results: Values in the structure of the fetches; the global step is the one after the step.
        options: None.
        run_metadata: None.

    Source: tf.compat.v1.train.SessionRunValues.
    """

    results: Any
    options: Any = None
    run_metadata: Any = None


class SessionRunContext:
    """The run that hooks are called before and after.

    Args:
        original_args: The loop's own request.
        session: The session.
        steps: Number of steps of the run.

    Source: tf.compat.v1.train.SessionRunContext.
    """

    def __init__(self, original_args: object, session: Session, steps: int = 1) -> None:
        self._original_args = original_args
        self._session = session
        self._steps = steps
        self._stop_requested = False

    @property
    def original_args(self) -> Any:
        """Returns the loop's own request."""
        return self._original_args

    @property
    def session(self) -> Any:
        """Returns the session."""
        return self._session

    @property
    def steps(self) -> int:
        """Returns the number of steps of this run."""
        return self._steps

    @property
    def stop_requested(self) -> bool:
        """Returns whether the loop is to end after this run."""
        return self._stop_requested

    def request_stop(self) -> None:
        """Ends the loop after this run; in a job of several workers, soon, on all of them after the same step."""
        self._stop_requested = True


class SessionRunHook:
    """Base class of hooks, called before and after steps of training, evaluation or prediction.

    A hook is called around each step. One that wants to know about few of them may have a further method, and the loop
    may then make several steps at once:

        def next_step(self, step: int) -> int | None

    It is given the number of steps done, and returns after which step the hook must be called next; None means never,
    and that number itself means after the next run, however many steps that makes.
    The hook may be called earlier. A class that overrides `before_run` or `after_run` of one with such a method is
    called around each step, unless it overrides `next_step` too.

    Source: tf.estimator.SessionRunHook.
    """

    def begin(self) -> None:
        """Runs once, before there is a session."""

    def after_create_session(self, session: Session, coord: object) -> None:
        """Runs once, when variables have their values.

        Args:
            session: The session.
            coord: None; of TensorFlow's threads there are none.
        """

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Runs before a step.

        Args:
            run_context: About the step.

        Returns:
            What to hand to `after_run`, or None.
        """

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Runs after a step; not if it failed or the input had ended.

        Args:
            run_context: The context, as before the step.
            run_values: The values that `before_run` requested.
        """

    def end(self, session: Session) -> None:
        """Runs at the end, unless the loop ends by an exception.

        Args:
            session: The session.
        """


# The methods that make a hook one that looks at steps.
_AROUND_STEPS = frozenset({"before_run", "after_run"})


def next_call(hook: Hook, step: int) -> int | None:
    """Returns the step after which a hook must be called next, or None for never; `step` for after the next run."""
    # An object may carry its own, such as a mock, or a function that a program has put there.
    replaced = _AROUND_STEPS & getattr(hook, "__dict__", {}).keys()
    # A hook without `before_run` and `after_run` of its own does not limit how many steps one dispatch runs.
    if not replaced and not _looks_at_steps(type(hook)):
        return None
    # TensorFlow's MonitoredSession calls every hook around every step: so does this, unless the hook says otherwise.
    if replaced or not _has_valid_next_step(type(hook)):
        return step + 1
    following = hook.next_step(step)
    # A hook that names a past step, as after a restart, is called after the next run.
    return None if following is None else max(int(following), step)


def step_after(context: SessionRunContext) -> int:
    """Returns the global step after the run that is about to start."""
    return int(context.session.run(GLOBAL_STEP)) + context.steps


@functools.cache
def _looks_at_steps(kind: type) -> bool:
    """Returns whether a class overrides a method that is called around steps."""
    return any(getattr(kind, name, None) is not getattr(SessionRunHook, name) for name in _AROUND_STEPS)


@functools.cache
def _has_valid_next_step(kind: type) -> bool:
    """Returns whether a class defines `next_step` no further from itself than the methods that it speaks for."""
    # A user's subclass of, say, StopAtStepHook with an `after_run` of its own expects each step, as in TensorFlow; the
    # inherited `next_step` knows nothing of that.
    for one in kind.__mro__:
        if "next_step" in vars(one):
            return True
        if _AROUND_STEPS & vars(one).keys():
            return False
    return False
