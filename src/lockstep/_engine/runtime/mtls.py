"""Certificates for jax's coordination service, where the installed jax can use them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from lockstep.errors import ArgumentError, UnsupportedError

_ARGUMENTS = {
    "LOCKSTEP_MTLS_CERT": "mtls_cert_file",
    "LOCKSTEP_MTLS_KEY": "mtls_key_file",
    "LOCKSTEP_MTLS_CA": "mtls_ca_file",
}


def files() -> dict[str, str]:
    """Returns the files that the environment names, by the arguments of `jax.distributed.initialize`; or nothing.

    Raises:
        ArgumentError: If some but not all are named, or one is not there.
    """
    given = {name: os.environ.get(name) for name in _ARGUMENTS}
    if not any(given.values()):
        return {}
    for name, path in given.items():
        if not path or not Path(path).is_file():
            raise ArgumentError(
                f"mTLS takes three files: {', '.join(_ARGUMENTS)}. Received: {name}={path!r}"
                f"{', which is no file' if path else ''}. Set all three to files in PEM format, or none."
            )
    return {_ARGUMENTS[name]: path for name, path in given.items() if path}


def arguments(initialize: Callable[..., Any]) -> dict[str, Any]:
    """Returns the arguments that make `jax.distributed.initialize` use the certificates, if there are any.

    Raises:
        ArgumentError: As `files`.
        UnsupportedError: If the installed jax has no such arguments.
    """
    found: dict[str, Any] = files()
    known = inspect.signature(initialize).parameters
    if found and not all(name in known for name in found):
        raise UnsupportedError(
            "LOCKSTEP_MTLS_CERT and its siblings need a jax whose coordination service can use certificates, such as "
            f"0.12. Received: jax {metadata.version('jax')}. Install a newer one, or set LOCKSTEP_CLUSTER_SECRET."
        )
    return found
