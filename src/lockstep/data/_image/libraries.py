"""The libraries that images need: optional, and imported when the first image is decoded or resized."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from lockstep.errors import UnsupportedError


@cache
def opencv() -> Any:
    """Returns OpenCV, kept to one thread per call.

    Images are spread over threads already. OpenCV would start as many again as there are processors, let them spin
    between calls, and lose them in a process that forks. The setting is the process's; a number of threads that the
    program has chosen itself, before or after, stays.

    Raises:
        UnsupportedError: If it is not installed.
    """
    library = _import("cv2", "opencv-python-headless")
    if library.getNumThreads() == library.getNumberOfCPUs():  # what it begins with
        library.setNumThreads(0)
    return library


@cache
def simplejpeg() -> Any:
    """Returns simplejpeg.

    Raises:
        UnsupportedError: If it is not installed.
    """
    return _import("simplejpeg", "simplejpeg")


def _import(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UnsupportedError(
            f'images need the package {package}, which cannot be imported ({error}): pip install "lockstep[images]".'
        ) from error
