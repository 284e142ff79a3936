"""Seeds of models that Keras trains: random numbers in their `call` and `train_step` differ from step to step.

A seed is state of the compiled step, beside the weights, as those of Keras' own layers are.
"""

from __future__ import annotations

import weakref

import jax
import keras
from keras.src.backend.common.stateless_scope import get_stateless_scope
from keras.src.backend.common.symbolic_scope import in_symbolic_scope
from keras.src.random.seed_generator import draw_seed

from lockstep._types import Array, Model, Variable

# By the id of their variable, as the scope of a step knows it.
_seeds: weakref.WeakValueDictionary[int, keras.random.SeedGenerator] = weakref.WeakValueDictionary()
_LIBRARIES = ("keras.", "lockstep.")


def give_seed(model: Model) -> None:
    """Gives a model a seed, once, if a class of the user's is in it, whose code may draw random numbers."""
    if any(id(generator.state) in _seeds for generator in model._seed_generators):
        return
    layers = model._flatten_layers(include_self=True, recursive=True)
    if all(f"{type(layer).__module__}.".startswith(_LIBRARIES) for layer in layers):
        return
    generator = keras.random.SeedGenerator()
    # Among the model's seeds, which are state of a step and no weights. A model that is built takes no attributes.
    was_locked = model._tracker.locked
    model._tracker.unlock()
    model._seed_generators.append(generator)
    if was_locked:
        model._lock_state()
    _seeds[id(generator.state)] = generator
    put_aside(generator.state)


def put_aside(variable: Variable) -> None:
    """Marks a variable that is state of a model's steps, and that its author does not know."""
    variable._lockstep_aside = True


def is_aside(variable: Variable) -> bool:
    """Returns whether `put_aside` has marked a variable."""
    return getattr(variable, "_lockstep_aside", False)


def draw_key() -> Array | None:
    """Returns a key of the model whose step is traced; `None` if it has none."""
    scope = get_stateless_scope()
    for variable in () if scope is None else scope.state_mapping:
        if variable in _seeds:
            return draw_seed(_seeds[variable])
    # Keras asks for the shapes alone, and any key serves.
    return jax.random.PRNGKey(0) if in_symbolic_scope() else None
