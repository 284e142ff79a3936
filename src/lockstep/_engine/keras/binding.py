"""Puts lockstep behind the methods of Keras models, for models that belong to a strategy.

Keras has no extension point for its training loop. So the first scope that is opened wraps the six public methods of
the JAX trainer, its constructor and `compile`, and the functions that save models. For any other model the wrappers
only call Keras' own. (`lockstep.compat` wraps them when a model of its programs is compiled: see `place_models`.)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from keras.src.backend.jax.trainer import JAXTrainer
from keras.src.trainers.trainer import Trainer
from keras.src.utils import traceback_utils

from lockstep._engine.keras import saving, trainer
from lockstep._engine.keras.compiled_models import note_request
from lockstep._engine.keras.fit import fit
from lockstep._engine.keras.ownership import claim, ownership_for_run

_METHODS: dict[str, Callable[..., Any]] = {
    "fit": fit,
    "evaluate": trainer.evaluate,
    "predict": trainer.predict,
    "train_on_batch": trainer.train_on_batch,
    "test_on_batch": trainer.test_on_batch,
    "predict_on_batch": trainer.predict_on_batch,
}
_installed = False


def install() -> None:
    """Wraps Keras' methods, once per process."""
    global _installed
    # A second wrapper would call the first one for every model.
    if _installed:
        return
    _installed = True
    for name, ours in _METHODS.items():
        setattr(JAXTrainer, name, _dispatch(name, getattr(JAXTrainer, name), ours))
    JAXTrainer.__init__ = _claim_after(JAXTrainer.__init__)
    Trainer.compile = _claim_after(Trainer.compile, note_request)
    saving.install()


def _dispatch(name: str, theirs: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method that calls `ours` for models of a strategy, and Keras' own for others."""
    ours = traceback_utils.filter_traceback(ours)

    @functools.wraps(theirs)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        owned = ownership_for_run(self)
        if owned is None:
            return theirs(self, *args, **kwargs)
        if owned.servers is None:
            return ours(self, owned, *args, **kwargs)
        # Imported here: most programs have no parameter servers.
        from lockstep._engine.keras.servers import methods

        return traceback_utils.filter_traceback(getattr(methods, name))(self, owned, *args, **kwargs)

    return method


def _claim_after(theirs: Callable[..., Any], note: Callable[..., None] | None = None) -> Callable[..., Any]:
    """Returns a method that gives the model to the open scope after Keras' own, and notes how it was called."""

    @functools.wraps(theirs)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = theirs(self, *args, **kwargs)
        # Afterwards: a subclass that raises in its constructor owns nothing.
        claim(self)
        if note is not None:
            note(self, args, kwargs)
        return result

    return method
