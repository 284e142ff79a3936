"""Makes `import keras` quick: what Keras imports for the sake of a few programs is imported by those programs.

Keras imports pandas, matplotlib, OpenCV and h5py wherever they are installed, JAX's sparse arrays (with scipy), and a
kernel for TPUs (with Pallas). Together that took two thirds of the time (2-core EPYC: 1.5 s with it, 0.6 s without,
numpy and JAX included). While Keras is imported stand-ins are in their place; afterwards nobody else sees them.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Generator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from lockstep._runtime.stand_in import Contents, Finder, StandIn

_KERAS = "keras"
_SPLASH = "jax.experimental.pallas.ops.tpu.splash_attention"
_LATER = {
    "cv2": Contents(),
    "h5py": Contents(),
    "jax.experimental.sparse": Contents(types=("JAXSparse", "BCOO", "BCSR"), decorators=("sparsify",)),
    _SPLASH: Contents(parts=("splash_attention_kernel", "splash_attention_mask")),
    "matplotlib": Contents(parts=("patches", "pyplot")),
    "matplotlib.pyplot": Contents(),
    "pandas": Contents(types=("DataFrame", "Series")),
    "psutil": Contents(),
}


_waiting: list[Callable[[], None]] = []


def when_imported(call: Callable[[], None]) -> None:
    """Calls `call` when Keras has been imported: now, or when the program imports it."""
    if any(isinstance(finder, _KerasFinder) for finder in sys.meta_path):
        _waiting.append(call)
    else:
        call()


def install() -> None:
    """Makes the import of Keras quick, if it has not been imported yet."""
    if _KERAS not in sys.modules:
        sys.meta_path.insert(0, _KerasFinder())


class _KerasFinder:
    """Finds Keras as the finders after it do, and changes how it is executed."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Returns where Keras is, or `None` for anything else."""
        if name != _KERAS:
            return None
        finders = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        found = next(filter(None, (finder.find_spec(name, path, target) for finder in finders)), None)
        if found is not None and hasattr(found.loader, "exec_module"):
            self._wrap(found.loader)
        return found

    def _wrap(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            with _stand_ins(), _no_collection():
                execute(module)
            while _waiting:
                _waiting.pop(0)()

        # Of this very loader alone: what else is asked of it (source, resources) stays as it is.
        with contextlib.suppress(AttributeError):
            loader.exec_module = exec_module


@contextlib.contextmanager
def _stand_ins() -> Generator[None]:
    """While open, the modules of `_LATER` that are there and not imported yet are stand-ins."""
    placed = {name: StandIn(name, contents) for name, contents in _LATER.items() if _is_needed(name)}
    finder = Finder()
    sys.modules.update(placed)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name, stand_in in placed.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]


def _is_needed(name: str) -> bool:
    return name not in sys.modules and PathFinder.find_spec(name.partition(".")[0]) is not None


@contextlib.contextmanager
def _no_collection() -> Generator[None]:
    """While open, no garbage is collected: what an import makes stays, and was searched again and again (0.15 s)."""
    if not gc.isenabled() or gc.get_freeze_count():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.unfreeze()  # Both together make it old, without the search that would come next.
        gc.enable()
