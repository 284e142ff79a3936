"""SyncReplicasOptimizer: one update for the averaged gradients of several batches, of whichever tasks compute them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NoReturn

from lockstep._types import PyTree, Tensor, Variable
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.estimator._hooks import SessionRunHook
from lockstep.estimator._model_fn.records import GroupOp, TrainOp
from lockstep.estimator._model_fn.scope import current
from lockstep.estimator.train._arguments import Pair
from lockstep.estimator.train._optimizer import Optimizer

_log = logging.getLogger("lockstep")


class SyncReplicasOptimizer(Optimizer):
    """Applies the mean of several batches' gradients as one update, for `model_fn`s of TensorFlow 1.

    In a cluster with `ps` tasks the batches of an update are computed by the chief and the workers, as
    `ParameterServerStrategy(mode="sync")` has them computed: whoever is idle takes the next one, and the numbers are
    the same for any number of tasks. Without a cluster one device computes them all. The global step counts updates.

    Args:
        opt: The optimizer that updates variables with the averages; of `lockstep.estimator.train`.
        replicas_to_aggregate: How many batches an update is made of; at least 1.
        total_num_replicas: How many tasks compute, for TensorFlow's sake; at least 1. Default: `replicas_to_aggregate`.
            Nothing depends on it: no batch is dropped, and a slow task's is computed again by an idle one.
        variable_averages: Only `None`.
        variables_to_average: Only `None`.
        use_locking: Accepted for TensorFlow's sake: updates never overlap.
        name: Name of the optimizer.

    Raises:
        ArgumentError: If `opt` is none of these optimizers, or a number is not at least 1.
        UnsupportedError: For averages of variables.

    Source: tf.compat.v1.train.SyncReplicasOptimizer.

    Examples:
        >>> optimizer = ls.estimator.train.GradientDescentOptimizer(0.1)
        >>> optimizer = ls.estimator.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=2)
        >>> hook = optimizer.make_session_run_hook(is_chief=True)
    """

    def __init__(
        self,
        opt: Optimizer,
        replicas_to_aggregate: int,
        total_num_replicas: int | None = None,
        variable_averages: Any = None,
        variables_to_average: PyTree | None = None,
        use_locking: bool = False,
        name: str = "sync_replicas",
    ) -> None:
        super().__init__(use_locking, name)
        if not isinstance(opt, Optimizer) or isinstance(opt, SyncReplicasOptimizer):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                "SyncReplicasOptimizer wraps an optimizer of lockstep.estimator.train (tf.compat.v1.train). Received: "
                f"{opt!r}. Use the one of that name there; those of Keras train synchronously with "
                "ParameterServerStrategy(mode='sync')."
            )
        if variable_averages is not None or variables_to_average is not None:
            raise UnsupportedError(
                "Averages of variables are no part of an update here. Received: variable_averages or "
                "variables_to_average. Leave both out; for averages use an optimizer of Keras with use_ema=True and "
                "ParameterServerStrategy(mode='sync')."
            )
        total = replicas_to_aggregate if total_num_replicas is None else total_num_replicas
        for argument, number in (("replicas_to_aggregate", replicas_to_aggregate), ("total_num_replicas", total)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ArgumentError(f"{argument} must be a whole number of at least 1. Received: {number!r}.")
        scope = current()
        if scope is None or scope.is_first_call:
            # TensorFlow's line, by which logs of jobs are read.
            _log.info("SyncReplicasV2: replicas_to_aggregate=%s; total_num_replicas=%s", replicas_to_aggregate, total)
        self._opt = opt
        self._replicas_to_aggregate = replicas_to_aggregate
        self._total_num_replicas = total
        self._gradients_applied = False

    def minimize(
        self,
        loss: Tensor,
        global_step: Tensor | Variable | None = None,
        var_list: PyTree | None = None,
        gate_gradients: int = Optimizer.GATE_OP,
        aggregation_method: None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: Tensor | None = None,
    ) -> TrainOp:
        """Returns the training operation that minimizes a loss; see `Optimizer.minimize`.

        Raises:
            ArgumentError: Without a global step, which counts the updates.
        """
        arguments = (var_list, gate_gradients, aggregation_method, colocate_gradients_with_ops, name, grad_loss)
        if type(self) is not SyncReplicasOptimizer:
            # A subclass may see gradients, as those of other optimizers do.
            return super().minimize(loss, global_step, *arguments)
        self._demand_step(global_step)
        return self._mark(self._opt.minimize(loss, global_step, *arguments))

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[Pair]:
        """Computes the gradients of one batch; see `Optimizer.compute_gradients`.

        What the model_fn makes of them, such as clipping, it does for each batch; the results are averaged.
        """
        return self._opt.compute_gradients(*args, **kwargs)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[Pair],
        global_step: Tensor | Variable | None = None,
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
    ) -> TrainOp:
        """Returns the training operation that averages and applies gradients; see `Optimizer.apply_gradients`.

        Raises:
            ArgumentError: Without gradients; or without a global step, which counts the updates.
        """
        pairs = list(grads_and_vars)
        if not pairs:
            raise ArgumentError("Must supply at least one variable. Received: no pair. Pass (gradient, variable).")
        self._demand_step(global_step)
        return self._mark(self._opt.apply_gradients(pairs, global_step, name, skip_gradients_aggregation))

    def get_slot(self, var: Variable, name: str) -> Any:
        """Returns a slot of the wrapped optimizer; see `Optimizer.get_slot`."""
        return self._opt.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Returns the sorted names of the wrapped optimizer's slots."""
        return self._opt.get_slot_names()

    def variables(self) -> list[Any]:
        """Returns the variables of the wrapped optimizer in this call of the model_fn."""
        return self._opt.variables()

    def get_chief_queue_runner(self) -> QueueRunner:
        """Returns a runner of no queue: servers apply an update when its gradients are there.

        Raises:
            ArgumentError: Before `apply_gradients` or `minimize`.
        """
        self._demand_applied("get_chief_queue_runner")
        return QueueRunner(f"{self._name}/sync_token_q")

    def get_init_tokens_op(self, num_tokens: int = -1) -> GroupOp:
        """Returns an operation that does nothing: there are no tokens that workers wait for.

        Args:
            num_tokens: At least `replicas_to_aggregate - total_num_replicas`; -1 for enough.

        Raises:
            ArgumentError: Before `apply_gradients` or `minimize`; and for too few tokens, with which training stands
                still in TensorFlow.
        """
        self._demand_applied("get_init_tokens_op")
        needed = self._replicas_to_aggregate - self._total_num_replicas
        if num_tokens != -1 and num_tokens < needed:
            raise ArgumentError(
                f"Too few tokens to finish the first step: {num_tokens} (given) vs {needed} (needed). Leave num_tokens "
                "out."
            )
        return GroupOp()

    def make_session_run_hook(self, is_chief: bool, num_tokens: int = -1) -> SessionRunHook:
        """Returns a hook for training, which checks that the optimizer is used; there is nothing to initialize.

        Args:
            is_chief: Whether this task is the chief.
            num_tokens: See `get_init_tokens_op`.
        """
        check = self._check_of(is_chief, num_tokens)
        return _SyncReplicasOptimizerHook(check)

    @property
    def chief_init_op(self) -> GroupOp:
        """An operation that does nothing: there is nothing to initialize."""
        self._demand_applied("chief_init_op")
        return GroupOp()

    @property
    def local_step_init_op(self) -> GroupOp:
        """An operation that does nothing: servers know which update a gradient is for."""
        self._demand_applied("local_step_init_op")
        return GroupOp()

    @property
    def ready_for_local_init_op(self) -> GroupOp:
        """An operation that does nothing: variables have values from the start."""
        self._demand_applied("ready_for_local_init_op")
        return GroupOp()

    def _check_of(self, is_chief: bool, num_tokens: int) -> Callable[[], None]:
        """Returns what a hook checks; a function, because values that hooks hold are searched for tensors."""

        def check() -> None:
            if not self._gradients_applied:
                raise ArgumentError(
                    "SyncReplicasOptimizer.apply_gradient should be called before using the hook. Received: a hook of "
                    "an optimizer that no model_fn has used. Make it of the one whose train_op the model_fn returns."
                )
            if is_chief:
                self.get_init_tokens_op(num_tokens)

        return check

    def _mark(self, op: TrainOp) -> TrainOp:
        """Returns an operation of the wrapped optimizer as one whose gradients are averaged over batches."""
        self._gradients_applied = True
        return replace(op, batches=self._replicas_to_aggregate)

    def _demand_step(self, global_step: object) -> None:
        if global_step is None:
            raise ArgumentError(
                "Global step is required to check staleness. Received: global_step=None. Pass "
                "tf.compat.v1.train.get_global_step()."
            )

    def _demand_applied(self, what: str) -> None:
        if not self._gradients_applied:
            raise ArgumentError(
                f"{what} should be called after apply_gradients(). Received: a call before. Call minimize or "
                "apply_gradients first, in the model_fn."
            )

    def _create_slots(self, var_list: Any) -> NoReturn:
        raise AssertionError("the wrapped optimizer makes its slots")


class QueueRunner:
    """A runner of a queue that is not there, for programs that start it.

    Attributes:
        name: The name of the queue in TensorFlow.

    Source: tf.compat.v1.train.QueueRunner.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def create_threads(self, sess: Any, coord: Any = None, daemon: bool = False, start: bool = False) -> list[Any]:
        """Returns no threads."""
        del sess, coord, daemon, start
        return []


class _SyncReplicasOptimizerHook(SessionRunHook):
    """Checks at the beginning that an optimizer is used."""

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check

    def begin(self) -> None:
        """Checks it."""
        self._check()
