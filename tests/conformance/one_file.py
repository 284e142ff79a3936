"""Runs the tests of one file, and writes a line of json for each as it ends. Started by tests.conformance.

It runs on lockstep, or, with `tensorflow`, on the TensorFlow that is installed, without importing lockstep.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import signal
import sys
import traceback
import unittest
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, TextIO

_PACKAGES = ("tensorflow_estimator", "tensorflow")
# A test may take this long on a busy machine; what takes longer waits for something.
_SECONDS = 60


def root_of(file: Path) -> Path:
    """Returns the directory that holds the package of a file of tests."""
    for parent in file.parents:
        if parent.name in _PACKAGES:
            return parent.parent
    return file.parent


class _Beside(importlib.abc.MetaPathFinder):
    """Finds what TensorFlow's package leaves out, such as bases of tests, in the directories of its sources."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = roots

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        for root in self._roots:
            place = root.joinpath(*fullname.split("."))
            if place.with_suffix(".py").is_file():
                return importlib.util.spec_from_file_location(fullname, place.with_suffix(".py"))
            if place.is_dir() and fullname.startswith(_PACKAGES):
                spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
                spec.submodule_search_locations = [str(place)]
                return spec
        return None


def _absent(error: BaseException | None) -> list[str] | None:
    """Returns kind and name of a name that is not there, if an error comes from that."""
    while error is not None:
        if type(error).__name__ == "AbsentError":
            return [error.kind, error.name]  # type: ignore[attr-defined]  # pyright: ignore
        error = error.__cause__ or error.__context__
    return None


class _SlowError(BaseException):
    """Raised in a test that takes too long: no `except Exception` of a test stops it."""


def _end(number: int, frame: FrameType | None) -> None:
    raise _SlowError(f"took more than {_SECONDS} s")


def _tests_of(suite: Any) -> Iterator[unittest.TestCase]:
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from _tests_of(one)
        else:
            yield one


# Errors that left a block which expected another class of error, or other words.
_expected_others: list[str] = []


def _watch_expectations() -> None:
    context = unittest.case._AssertRaisesContext  # type: ignore[attr-defined]  # pyright: ignore
    original = context.__exit__

    def leave(self: Any, kind: Any, error: Any, tb: Any) -> Any:
        try:
            handled = original(self, kind, error, tb)
        except AssertionError as failure:
            if "does not match" in str(failure):
                _expected_others.append("words")
            raise
        if kind is not None and not handled and issubclass(kind, Exception):
            _expected_others.append("class")
        return handled

    context.__exit__ = leave


class _Result(unittest.TestResult):
    def __init__(self, out: TextIO, roots: Sequence[Path]) -> None:
        super().__init__()
        self._out = out
        self._sources = tuple(f"{root}/" for root in roots)

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        _expected_others.clear()
        self._write(test, "start")
        signal.alarm(_SECONDS)

    def stopTest(self, test: unittest.TestCase) -> None:
        signal.alarm(0)
        super().stopTest(test)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._write(test, "pass")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._write(test, "skip", why=reason[:200])

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._fail(test, err)

    addError = addFailure

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self._fail(test, err)

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._write(test, "pass")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self._write(test, "fail", error="AssertionError", why="unexpected success")

    def _fail(self, test: unittest.TestCase, err: Any) -> None:
        kind, error, tb = err
        frames = traceback.extract_tb(tb)
        method = getattr(test, test._testMethodName, None)
        code = getattr(getattr(method, "__func__", method), "__code__", None)
        self._write(
            test,
            "fail",
            error=kind.__name__,
            kinds=[cls.__name__ for cls in kind.__mro__],
            why=" ".join(str(error).split())[:400],
            absent=_absent(error),
            expected_other=bool(_expected_others),
            lines=[f.line for f in frames if f.line and f.filename.startswith(self._sources)][-6:],
            at=f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "",
            method=code.co_name if code else "",
        )

    def _write(self, test: unittest.TestCase, outcome: str, **more: Any) -> None:
        name = ".".join(test.id().split(".")[-2:])
        self._out.write(json.dumps({"test": name, "outcome": outcome, **more}) + "\n")
        self._out.flush()


def main() -> None:
    """Reads the file, where to write, which tests to leave out or to run alone, and whether on TensorFlow."""
    settings = json.loads(sys.argv[1])
    file, roots = Path(settings["file"]), [Path(r) for r in settings["roots"]]
    warnings.simplefilter("ignore")
    from absl import flags

    loading: dict[str, bool] = {}
    if settings["tensorflow"]:
        importlib.import_module("tensorflow")
        for package in _PACKAGES:
            for name, module in list(sys.modules.items()):
                if name.startswith(f"{package}.") and hasattr(module, "__path__"):
                    module.__path__ = list(module.__path__)
        sys.meta_path.append(_Beside(roots))
        _name_keras()
        _enough_devices()
    else:
        from tests.conformance import absent, shim

        loading = absent.loading
        shim.install(roots)
        shim.see_methods(_name_of(file))
    _watch_expectations()
    signal.signal(signal.SIGALRM, _end)
    with open(settings["out"], "a") as out:
        loading["now"] = True
        try:
            module = _load(file)
            loading["now"] = False
            tests = list(_tests_of(unittest.defaultTestLoader.loadTestsFromModule(module)))
        except BaseException as error:
            last = traceback.extract_tb(error.__traceback__)
            out.write(
                json.dumps(
                    {
                        "test": "(import)",
                        "outcome": "fail",
                        "error": type(error).__name__,
                        "why": " ".join(str(error).split())[:400],
                        "lines": [f.line for f in last if str(file) in f.filename][-3:],
                        "at": f"{last[-1].filename}:{last[-1].lineno}" if last else "",
                        "absent": _absent(error),
                    }
                )
                + "\n"
            )
            out.flush()
            os._exit(0)
        flags.FLAGS(["conformance"], known_only=True)
        done, only = set(settings["done"]), settings["only"]
        result = _Result(out, roots)
        for test in tests:
            name = ".".join(test.id().split(".")[-2:])
            # A method of TestCase that has a test's name.
            is_test = not name.endswith(".test_session")
            if is_test and name not in done and (only is None or only in name):
                _run(test, result)
        out.write(json.dumps({"test": "(end)", "outcome": "end"}) + "\n")
    os._exit(0)


def _run(test: unittest.TestCase, result: _Result) -> None:
    cls = type(test)
    # Of each test's own: the cost is small, and a failure of one test is none of another.
    try:
        cls.setUpClass()
    except Exception:
        result.startTest(test)
        (result.addSkip(test, "") if _is_skip() else result.addFailure(test, sys.exc_info()))
        result.stopTest(test)
        return
    try:
        test.run(result)
    except _SlowError:
        result._write(test, "timeout")
    finally:
        signal.alarm(0)
        try:
            cls.tearDownClass()
            test.doClassCleanups()
        except Exception:
            pass


def _is_skip() -> bool:
    return isinstance(sys.exc_info()[1], unittest.SkipTest)


def _name_of(file: Path) -> str:
    """Returns the name that a file has in its package."""
    return ".".join(file.relative_to(root_of(file)).with_suffix("").parts)


def _load(file: Path) -> ModuleType:
    name = _name_of(file)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _name_keras() -> None:
    """Gives later sources of tf.estimator's tests the modules in which they look for Keras 2."""
    try:
        util = importlib.import_module("tensorflow_estimator.python.estimator.util")
    except ImportError:
        return
    tf = importlib.import_module("tensorflow")
    for name, keras in (("tf_keras", tf.keras), ("tf_keras_v1", tf.compat.v1.keras), ("tf_keras_v2", tf.keras)):
        setattr(util, name, keras)


def _enough_devices() -> None:
    import tensorflow as tf  # pyright: ignore

    config = tf.config.LogicalDeviceConfiguration
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], [config()] * 4)


if __name__ == "__main__":
    main()
