"""tf.compat.v1.app: runs a program's main function."""

from __future__ import annotations

import importlib as _importlib
import importlib.util as _util
import sys as _sys
from collections.abc import Callable as _Callable
from typing import Any as _Any
from typing import NoReturn as _NoReturn

from lockstep.compat.tensorflow._missing import getter as _getter

__all__ = ["run"]


def run(main: _Callable[[list[str]], _Any] | None = None, argv: list[str] | None = None) -> _NoReturn:
    """Parses absl's flags, if absl is installed, and ends the program with what `main(argv)` returns.

    Args:
        main: By default the main of `__main__`.
        argv: By default that of the process.

    Source: tf.compat.v1.app.run.
    """
    function = main or getattr(_sys.modules["__main__"], "main")  # noqa: B009
    arguments = _sys.argv if argv is None else argv
    # TensorFlow hands over to absl, which parses flags that the program has defined.
    if _util.find_spec("absl"):
        # As TensorFlow's, which leaves flags that nobody has defined to the program.
        flags: _Any = _importlib.import_module("absl.flags").FLAGS

        def parse(given: list[str]) -> _Any:
            return flags(given, known_only=True)

        _importlib.import_module("absl.app").run(function, arguments, flags_parser=parse)
    _sys.exit(function(arguments))


_other = _getter(__name__)


def __getattr__(name: str) -> _Any:
    return _importlib.import_module("absl.flags") if name == "flags" and _util.find_spec("absl") else _other(name)
