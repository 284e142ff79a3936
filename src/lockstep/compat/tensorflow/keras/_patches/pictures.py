"""`ImageDataGenerator` with versions of SciPy that have moved a function it calls."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

from keras.src.legacy.preprocessing import image


def install() -> None:
    """Gives Keras' old picture functions the place where the function is now; SciPy is imported when it is called."""
    module: Any = image
    module.scipy = _SciPy()


class _SciPy:
    @property
    def ndimage(self) -> Any:
        """`scipy.ndimage`, whose content was also in `scipy.ndimage.interpolation`."""
        return SimpleNamespace(interpolation=importlib.import_module("scipy.ndimage"))
