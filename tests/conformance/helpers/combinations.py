"""`combinations.generate` and what it takes: a test for each combination of arguments, named as TensorFlow names it."""

from __future__ import annotations

import functools
import inspect
import itertools
import re
import types
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from absl.testing import parameterized

from tests.conformance.absent import AbsentError

# Arguments that choose how a test runs; it gets those that it asks for.
_ENVIRONMENT = (
    *("mode", "tf_api_version", "required_gpus", "required_physical_gpus", "required_tpu", "required_tpus"),
    *("use_cloud_tpu", "use_var_policy", "cluster", "has_chief", "num_workers", "share_gpu", "use_merge_call"),
    *("warmup_steps", "no_xla"),
)


class NamedObject:
    """Object with a name for tests; calls and attributes are the object's own."""

    def __init__(self, name: str, obj: Any) -> None:
        self._name, self._obj = name, obj

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._obj, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._obj(*args, **kwargs)

    def __repr__(self) -> str:
        return self._name


class NamedDistribution:
    """Strategy of a test, made when the test begins."""

    def __init__(
        self, name: str, distribution_fn: Callable[[], Any], required_gpus: Any = None, required_physical_gpus: Any = 0,
        required_tpu: bool = False, use_cloud_tpu: bool = False, has_chief: bool = False, num_workers: int = 1,
        num_ps: int = 0, share_gpu: bool = True, pool_runner_fn: Any = None, no_xla: bool = False,
    ) -> None:  # fmt: skip
        self._name, self._make = name, distribution_fn
        self.required_tpu, self.num_workers, self.num_ps, self.has_chief = required_tpu, num_workers, num_ps, has_chief
        self.required_gpus, self.use_cloud_tpu, self.required_physical_gpus = required_gpus, use_cloud_tpu, 0

    @property
    def strategy(self) -> Any:
        if self.required_tpu:
            raise AbsentError("internal", "a TPU")
        if self.num_workers > 1 or self.num_ps or self.has_chief:
            raise AbsentError("processes", "several processes")
        return self._make()

    def __repr__(self) -> str:
        return self._name


class ParameterModifier:
    """Base of what changes arguments before a test."""

    DO_NOT_PASS_TO_THE_TEST = object()

    def __init__(self, parameter_name: str | None = None) -> None:
        self._parameter_name = parameter_name

    def modified_arguments(self, kwargs: Any, requested_parameters: Any) -> dict[str, Any]:
        return {}


class OptionalParameter(ParameterModifier):
    """Argument that a test need not take."""

    def modified_arguments(self, kwargs: Any, requested_parameters: Any) -> dict[str, Any]:
        name = self._parameter_name or ""
        return {} if name in requested_parameters else {name: self.DO_NOT_PASS_TO_THE_TEST}


class TestCombination:
    """Base of what decides whether and how a combination runs."""

    __test__ = False

    def should_execute_combination(self, kwargs: Any) -> tuple[bool, str | None]:
        return True, None

    def parameter_modifiers(self) -> list[Any]:
        return []

    def context_managers(self, kwargs: Any) -> list[Any]:
        return []


ClusterCombination = DistributionCombination = GPUCombination = TPUCombination = TestCombination
TFFunctionTestCombination = EagerGraphCombination = TFVersionCombination = TestCombination


def combine(**kwargs: Any) -> list[OrderedDict[str, Any]]:
    """Returns all combinations of the values, or lists of values, of arguments."""
    keys = sorted(kwargs)
    # The first argument varies slowest.
    values = [v if isinstance(v, list) else [v] for v in (kwargs[k] for k in keys)]
    return [OrderedDict(zip(keys, chosen, strict=True)) for chosen in itertools.product(*values)]


def times(*combined: Sequence[Any]) -> list[OrderedDict[str, Any]]:
    """Returns the product of lists of combinations."""
    products = [[pair for one in chosen for pair in one.items()] for chosen in itertools.product(*combined)]
    for pairs in products:
        if len({k for k, _ in pairs}) != len(pairs):
            raise ValueError(f"An argument is in two of the combinations: {pairs}")
    return [OrderedDict(pairs) for pairs in products]


def concat(*combined: Sequence[Any]) -> list[Any]:
    """Returns the combinations of all lists."""
    return [one for some in combined for one in some]


def _name_of(value: Any, index: int) -> str:
    # Addresses would differ from run to run.
    return re.sub("0[xX][0-9a-fA-F]+", str(index), str(value))


def generate(combinations: Sequence[Any], test_combinations: Sequence[Any] = ()) -> Callable[[Any], Any]:
    """Makes a test of each combination of arguments, of a method or of all methods of a class."""
    named: list[OrderedDict[str, Any]] = []
    for one in combinations:
        words = [
            "_{}_{}".format(
                "".join(c for c in key if c.isalnum()), "".join(c for c in _name_of(value, i) if c.isalnum())
            )
            for i, (key, value) in enumerate(one.items())
        ]
        named.append(OrderedDict([*one.items(), ("testcase_name", f"_test{''.join(words)}")]))

    def decorate(decorated: Any) -> Any:
        if not isinstance(decorated, type):
            return parameterized.named_parameters(*named)(_wrapper(decorated, test_combinations))
        ids: dict[str, str] = {}
        decorated._test_method_ids = ids  # pyright: ignore[reportAttributeAccessIssue]
        for name, method in list(vars(decorated).items()):
            if name.startswith("test") and isinstance(method, types.FunctionType):
                delattr(decorated, name)
                for key, made in _methods(decorated, name, _wrapper(method, test_combinations), named, ids).items():
                    setattr(decorated, key, made)
        return decorated

    return decorate


def _methods(cls: type, name: str, method: Any, named: Any, ids: dict[str, str]) -> dict[str, Any]:
    holder = parameterized.TestGeneratorMetaclass(
        cls.__name__, (parameterized.TestCase,), {name: parameterized.named_parameters(*named)(method)}
    )
    ids.update(getattr(holder, "_test_params_reprs", {}))
    return {key: value for key, value in vars(holder).items() if key.startswith("test")}


def _wrapper(method: Any, test_combinations: Sequence[Any]) -> Any:
    wanted = inspect.signature(inspect.unwrap(method)).parameters

    @functools.wraps(method)
    def run(self: Any, **kwargs: Any) -> None:
        for combination in test_combinations:
            executes, reason = combination.should_execute_combination(dict(kwargs))
            if not executes:
                self.skipTest(reason or "")
        if kwargs.get("tf_api_version") == 1:
            self.skipTest("for TensorFlow 1")
        if kwargs.get("mode") == "graph":
            raise AbsentError("graph", "graph mode")
        if kwargs.get("required_gpus") or kwargs.get("required_physical_gpus"):
            self.skipTest("needs a GPU")
        if kwargs.get("required_tpu") or kwargs.get("required_tpus"):
            self.skipTest("needs a TPU")
        passed = {k: v for k, v in kwargs.items() if k in wanted or k not in _ENVIRONMENT}
        for key, value in passed.items():
            if isinstance(value, NamedDistribution):
                if value.required_tpu:
                    self.skipTest("needs a TPU")
                passed[key] = value.strategy
        method(self, **passed)

    # absl looks for the arguments of what it calls.
    del run.__wrapped__
    return run


def in_main_process() -> bool:
    return True


def env() -> Any:
    return types.SimpleNamespace(tf_data_service_dispatcher=None, total_phsyical_gpus=0)


def _function(function: Any) -> Any:
    import lockstep.compat.tensorflow as tf

    return tf.function(function)


tf_function = NamedObject("TfFunction", _function)
no_tf_function = NamedObject("NoTfFunction", lambda function: function)


def set_virtual_cpus_to_at_least(count: int) -> None:
    """Does nothing: the process has enough devices."""
