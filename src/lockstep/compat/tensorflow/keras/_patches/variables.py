"""Variables whose values a GradientTape that is open tells from all other arrays."""

from __future__ import annotations

import functools
from typing import Any

from keras.src.backend.common.variables import Variable

from lockstep.compat.tensorflow._tape.recording import innermost

_original = Variable._maybe_autocast


@functools.wraps(_original)
def _read(self: Any, value: Any) -> Any:
    # Keras hands it each value that is read, whatever it comes from.
    recording = innermost()
    return _original(self, value if recording is None else recording.read(self, value))


Variable._maybe_autocast = _read
