"""Estimator: the public class, and what its methods do before the work begins."""

from __future__ import annotations

import copy
import itertools
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lockstep import checkpoint
from lockstep._engine.runtime import local_training
from lockstep._types import PyTree
from lockstep.errors import ArgumentError, CheckpointError
from lockstep.estimator._arguments import call_model_fn, check_hooks, check_listeners, check_model_fn, check_step_count
from lockstep.estimator._core import EstimatorCore, log_only_on
from lockstep.estimator._estimator_spec import EstimatorSpec
from lockstep.estimator._evaluation.evaluate import evaluate, evaluate_in_memory
from lockstep.estimator._export.saved_model import export_checkpoint
from lockstep.estimator._prediction import examples_of, predict_batches
from lockstep.estimator._run_config import RunConfig
from lockstep.estimator._servers.job import servers_of, train_with_servers
from lockstep.estimator._training import Training, TrainRequest
from lockstep.estimator._types import Hook, Session
from lockstep.estimator._warm_start import WarmStartSettings

_log = logging.getLogger("lockstep")


class Estimator:
    """An estimator: trains, evaluates, predicts with and exports the model of a model_fn.

    The model_fn is called with features (and labels, mode, params, config, as far as it takes them by name), makes its
    layers and returns an `EstimatorSpec`. It is a pure function: JAX traces it, so it is called again for each mode and
    batch size, and its variables live in checkpoints under `model_dir`, not in the objects that it makes.

    With a strategy (`RunConfig(train_distribute=...)`) each replica gets batches of its own from the input_fn, as in
    TensorFlow; gradients are averaged over the replicas before they are clipped or applied.

    Args:
        model_fn: The function.
        model_dir: The directory of checkpoints and event files. Default: that of `config`, else a temporary directory.
        config: A `RunConfig`.
        params: A dict that is passed to model_fn and input_fn; it is copied.
        warm_start_from: A checkpoint, a directory of checkpoints, or `WarmStartSettings`, for first values while
            `model_dir` has no checkpoint.

    Raises:
        ArgumentError: If an argument is invalid, or a subclass overrides a method.

    Source: tf.estimator.Estimator.
    """

    def __init__(
        self,
        model_fn: Callable[..., EstimatorSpec],
        model_dir: str | os.PathLike[str] | None = None,
        config: RunConfig | None = None,
        params: Mapping[str, Any] | None = None,
        warm_start_from: WarmStartSettings | str | os.PathLike[str] | None = None,
    ) -> None:
        _show_logs()
        # Subclasses supply a model_fn and nothing else, so that all of them train alike; TensorFlow's rule.
        public = {name for name in vars(Estimator) if not name.startswith("_")}
        for owner in itertools.takewhile(lambda kind: kind is not Estimator, type(self).__mro__):
            if overridden := sorted(public & set(vars(owner))):
                raise ArgumentError(
                    f"Subclasses of Estimator cannot override members of Estimator. Received: {type(self).__name__}, "
                    f"which does override {', '.join(overridden)}. Pass a model_fn of your own instead."
                )
        complete = _config_with(config, model_dir)
        check_model_fn(model_fn, params)
        self._core = EstimatorCore(model_fn, complete, params or {}, _warm_start_settings(warm_start_from))
        with log_only_on(complete.is_chief or complete.task_type == "evaluator"):
            _log.info("Using config: %s", complete)

    @property
    def model_dir(self) -> str:
        """Returns the directory of checkpoints and event files."""
        return self._core.model_dir

    @property
    def config(self) -> RunConfig:
        """Returns a copy of the configuration."""
        return copy.copy(self._core.config)

    @property
    def params(self) -> dict[str, Any]:
        """Returns a copy of the parameters."""
        return self._core.params

    @property
    def model_fn(self) -> Callable[..., Any]:
        """Returns the model_fn as a function of features, labels, mode and config."""

        def public_model_fn(features: PyTree, labels: PyTree, mode: str, config: RunConfig) -> Any:
            return call_model_fn(self._core.model_fn, features, labels, mode, self.params, config)

        return public_model_fn

    def train(
        self,
        input_fn: Callable[..., Any],
        hooks: Sequence[Any] | Any = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[Any] | Any = None,
    ) -> Estimator:
        """Trains, from the latest checkpoint on if there is one.

        Args:
            input_fn: Returns a dataset of batches, (features, labels); called anew each time.
            hooks: `SessionRunHook`s.
            steps: Number of further steps. Default: until the input ends.
            max_steps: The global step to stop at; does nothing if it is reached.
            saving_listeners: `CheckpointSaverListener`s, called for each checkpoint.

        Returns:
            This object.

        Raises:
            ArgumentError: If an argument is invalid.
            NanLossDuringTrainingError: If the loss becomes NaN.

        Source: tf.estimator.Estimator.train.
        """
        core = self._core
        config = core.config
        if config.task_type in ("evaluator", "ps"):
            raise ArgumentError(
                "Train has been called wrong configuration. Please use `tf.estimator.train_and_evaluate` which calls "
                f"proper API according to given configuration. Received: task {config.task_type} {config.task_id}, "
                "which does not train."
            )
        if steps is not None and max_steps is not None:
            raise ArgumentError("Can not provide both steps and max_steps. Received: both. Give one of them.")
        steps, max_steps = check_step_count(steps, "steps"), check_step_count(max_steps, "max_steps")
        listeners = check_listeners(saving_listeners)
        request = TrainRequest(input_fn, check_hooks(hooks), steps, max_steps, listeners)
        servers = servers_of(config)
        if servers is not None:
            with log_only_on(servers.role == "chief"), core.cache_programs():
                train_with_servers(core, request, servers)
            return self
        replicas, is_distributed = core.replicas_of(config.train_distribute)
        if not is_distributed:
            remedy = "Give it RunConfig(train_distribute=strategy)."
            local_training.warn(f"The Estimator of {core.model_dir!r}", remedy)
        runtime = replicas.runtime
        with runtime.collective_region("Estimator.train"), log_only_on(runtime.is_chief):
            # Before the input_fn is called, as in TensorFlow: a job that is started again at its end reads no data.
            if core.is_trained(runtime, max_steps):
                _log.info("Skipping training since max_steps has already saved.")
                return self
            with core.cache_programs():
                Training(core, request, replicas, is_distributed).run()
        return self

    def evaluate(
        self,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Sequence[Any] | Any = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Evaluates a checkpoint, and writes the results for TensorBoard into `eval_dir(name)`.

        Args:
            input_fn: Returns a dataset of batches, (features, labels).
            steps: Maximum number of batches. Default: all.
            hooks: `SessionRunHook`s.
            checkpoint_path: The checkpoint's path. Default: the latest; without any, new variables.
            name: Name of this evaluation, to tell several apart.

        Returns:
            The metrics, "loss" (the plain mean of the batches' losses) and "global_step".

        Raises:
            ArgumentError: If an argument is invalid, or there is no data.
            CheckpointError: If the checkpoint cannot be read, or is of another model.

        Source: tf.estimator.Estimator.evaluate.
        """
        steps = check_step_count(steps, "steps")
        strategy, checked = self._core.config.eval_distribute, check_hooks(hooks)
        return evaluate(self._core, strategy, input_fn, steps, checked, checkpoint_path, self.eval_dir(name))

    def predict(
        self,
        input_fn: Callable[..., Any],
        predict_keys: Sequence[str] | str | None = None,
        hooks: Sequence[Any] | Any = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
    ) -> Iterator[Any]:
        """Yields predictions, computed on this process' first device as they are asked for.

        Args:
            input_fn: Returns a dataset of batches of features; labels are left out.
            predict_keys: Keys to return of a dict of predictions.
            hooks: `SessionRunHook`s.
            checkpoint_path: The checkpoint's path. Default: the latest; without any, new variables.
            yield_single_examples: Whether to yield an example or a batch at a time.

        Yields:
            Numpy arrays, or dicts of them.

        Raises:
            ArgumentError: If an argument is invalid, or predictions of a batch are of different lengths.

        Source: tf.estimator.Estimator.predict.
        """
        # A generator, as in TensorFlow: nothing is read before the first prediction is asked for.
        path = checkpoint_path or self.latest_checkpoint()
        if path is None:
            _log.info(
                "Could not find trained model in model_dir: %s, running initialization to predict.", self.model_dir
            )
        keys = [predict_keys] if isinstance(predict_keys, str) else predict_keys
        batches = predict_batches(self._core, input_fn, keys, check_hooks(hooks), path)
        yield from examples_of(batches) if yield_single_examples else batches

    def export_saved_model(
        self,
        export_dir_base: str | os.PathLike[str],
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, Any] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        experimental_mode: str = "infer",
    ) -> bytes:
        """Exports the model for serving, to a new directory named after the time.

        It holds the weights and compiled programs for any batch size; `lockstep.saved_model.load` reads it without the
        model's code.

        Args:
            export_dir_base: The parent directory.
            serving_input_receiver_fn: Returns a `ServingInputReceiver`: inputs, and features computed from them.
            assets_extra: Files to add, by name.
            as_text: Write the programs as text, too.
            checkpoint_path: The checkpoint's path. Default: the latest.
            experimental_mode: "infer", or "eval" for loss and metrics.

        Returns:
            The path of the directory.

        Raises:
            ArgumentError: If there is no checkpoint, or an argument is wrong.
            UnsupportedError: If the model cannot be exported.

        Source: tf.estimator.Estimator.export_saved_model.
        """
        receiver_fns = {experimental_mode: serving_input_receiver_fn}
        return export_checkpoint(self._core, export_dir_base, receiver_fns, assets_extra, as_text, checkpoint_path)

    export_savedmodel = export_saved_model

    def experimental_export_all_saved_models(
        self,
        export_dir_base: str | os.PathLike[str],
        input_receiver_fn_map: Mapping[str, Callable[[], Any]],
        assets_extra: Mapping[str, Any] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
    ) -> bytes:
        """Exports signatures of several modes; see `export_saved_model`.

        Args:
            export_dir_base: See there.
            input_receiver_fn_map: Receiver functions by mode.
            assets_extra: See there.
            as_text: See there.
            checkpoint_path: See there.

        Source: tf.estimator.Estimator.experimental_export_all_saved_models.
        """
        return export_checkpoint(
            self._core, export_dir_base, input_receiver_fn_map, assets_extra, as_text, checkpoint_path
        )

    def latest_checkpoint(self) -> str | None:
        """Returns the path of the latest checkpoint in `model_dir`, without a suffix, or `None`."""
        return self._core.latest_checkpoint()

    def get_variable_names(self) -> list[str]:
        """Returns the names of the variables in the latest checkpoint.

        Raises:
            CheckpointError: If there is none.
        """
        return [name for name, _ in checkpoint.list_variables(self._require_checkpoint())]

    def get_variable_value(self, name: str) -> np.ndarray:
        """Returns the value of a variable in the latest checkpoint.

        Raises:
            CheckpointError: If there is no checkpoint, or no such variable.
        """
        return checkpoint.load_variable(self._require_checkpoint(), name)

    def eval_dir(self, name: str | None = None) -> str:
        """Returns the directory of an evaluation's event files."""
        # TensorFlow's names: early stopping and BestExporter look for event files there.
        return os.path.join(self.model_dir, "eval" if not name else f"eval_{name}")

    def _evaluate_in_memory(
        self,
        session: Session,
        input_fn: Callable[..., Any],
        steps: int | None,
        hooks: Sequence[Hook] | None,
        name: str | None,
    ) -> dict[str, Any]:
        """Evaluates the variables of a training under way, on this process' first device."""
        return evaluate_in_memory(self._core, session, input_fn, steps, check_hooks(hooks), self.eval_dir(name))

    def _require_checkpoint(self) -> str:
        path = self.latest_checkpoint()
        if path is None:
            raise CheckpointError(
                f"Could not find a checkpoint in model_dir: {self.model_dir}. Train first, or make the Estimator with "
                "the model_dir of an earlier training."
            )
        return path


def core_of(estimator: Estimator) -> EstimatorCore:
    """Returns the core of an Estimator, for the other modules of this package."""
    return estimator._core  # pyright: ignore[reportPrivateUsage]


def _config_with(config: RunConfig | None, model_dir: str | os.PathLike[str] | None) -> RunConfig:
    if config is not None and not isinstance(config, RunConfig):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"config must be an instance of RunConfig. Received: {config!r}.")
    if config is None:
        _log.info("Using default config.")
        config = RunConfig()
    # TensorFlow takes an empty text for none.
    given = None if model_dir is None or not os.fspath(model_dir) else os.fspath(model_dir)
    # TensorFlow's rule: twice the same is fine.
    if given is not None and config.model_dir is not None and given != config.model_dir:
        raise ArgumentError(
            "model_dir are set both in constructor and RunConfig, but with different values. In constructor: "
            f"{given!r}, in RunConfig: {config.model_dir!r}. Give it once."
        )
    if given is None and config.model_dir is None:
        # As in TensorFlow, with the same warning: checkpoints there are lost with the machine's temporary files.
        given = tempfile.mkdtemp()
        _log.warning("Using temporary folder as model directory: %s", given)
    return config if given is None else config.replace(model_dir=given)


def _warm_start_settings(given: object) -> WarmStartSettings | None:
    if given is None or isinstance(given, WarmStartSettings):
        return given
    if isinstance(given, (str, bytes, os.PathLike)):
        # Bytes: what export_saved_model returns.
        return WarmStartSettings(ckpt_to_initialize_from=os.fsdecode(given))
    raise ArgumentError(
        f"warm_start_from must be a path or WarmStartSettings. Received: {given!r}. Example: "
        "WarmStartSettings(ckpt_to_initialize_from=path, vars_to_warm_start='.*embedding.*')"
    )


def _show_logs() -> None:
    """Shows messages from INFO up on standard error, as TensorFlow does, unless the program decides on that itself."""
    # A program with its own handlers would see each message twice.
    if _log.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s:%(name)s:%(message)s"))
    _log.addHandler(handler)
    if _log.level == logging.NOTSET:
        _log.setLevel(logging.INFO)
