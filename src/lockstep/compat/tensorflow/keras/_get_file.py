"""`tf.keras.utils.get_file` with the paths of Keras 2, where an archive is extracted beside itself."""

from __future__ import annotations

import os
import urllib.parse
import warnings
from pathlib import Path
from typing import Any

import keras
from keras.src.backend.config import keras_home
from keras.src.utils import file_utils

from lockstep.compat.tensorflow._types import PathLike
from lockstep.errors import ArgumentError

_TAR = ".tar.gz"


def get_file(
    fname: PathLike = None,
    origin: str | None = None,
    untar: bool = False,
    md5_hash: str | None = None,
    file_hash: str | None = None,
    cache_subdir: str = "datasets",
    hash_algorithm: str = "auto",
    extract: bool = False,
    archive_format: str | list[str] | None = "auto",
    cache_dir: PathLike = None,
    force_download: bool = False,
) -> str:
    """Downloads a file, unless it is in the cache, and extracts it where Keras 2 does.

    Args:
        fname: The name of the file; an absolute path is where it is saved. Default: the last part of `origin`.
        origin: Where to download it from; `file://` URLs serve, too.
        untar: Whether to extract a tar archive. The archive is saved as `<fname>.tar.gz`, and extracted into its own
            directory unless `<fname>` is there already.
        md5_hash: The expected MD5 hash, Keras 1's way to write `file_hash`.
        file_hash: The expected hash of the file.
        cache_subdir: The directory below `cache_dir`; an absolute path is where the file is saved.
        hash_algorithm: "md5", "sha256" or "auto".
        extract: Whether to extract the archive, each time, into its own directory.
        archive_format: "tar", "zip", a list of them, "auto" for both, or None for none.
        cache_dir: The cache. Default: `$KERAS_HOME`, or `~/.keras`.
        force_download: Whether to download what is in the cache, too.

    Returns:
        The path of the file; with `untar` that path without `.tar.gz`, where the archive's content is expected. With
        `extract` it is still the archive's: programs of Keras 2 take its parent directory.

    Raises:
        ArgumentError: If there is no `origin`, or no name of a file.

    Source: `tf.keras.utils.get_file` of TensorFlow 2.15.
    """
    if origin is None:
        raise ArgumentError('get_file needs origin=, the URL of the file. Received none. Write get_file(origin="...").')
    name = os.fspath(fname) if fname else os.path.basename(urllib.parse.urlsplit(origin).path)
    if not name:
        raise ArgumentError(f"The last part of origin= is the name of the file. Received: {origin}. Give fname=.")
    # Keras 2 removes this ending alone, and appends it to whatever else the name is.
    content = name.removesuffix(_TAR) if untar else name
    directory, file = os.path.split(f"{content}{_TAR}" if untar else name)
    fetched = keras.utils.get_file(
        file,
        origin,
        md5_hash=md5_hash,
        file_hash=file_hash,
        # An absolute directory stays what it is when it is joined to another.
        cache_subdir=os.path.join(cache_subdir, directory),
        hash_algorithm=hash_algorithm,
        cache_dir=cache_dir,
        force_download=force_download,
    )
    # Keras 2 extracts into the cache, whatever the directory of the name is.
    if os.path.isabs(name):
        base = os.path.join(os.path.expanduser(str(cache_dir or keras_home())), cache_subdir)
    else:
        base = str(Path(fetched).parents[len(Path(directory).parts)])
    if untar:
        target = os.path.join(os.path.dirname(fetched), os.path.basename(content))
        if not os.path.exists(target):
            _extract(fetched, base, "tar")
        return target
    if extract:
        _extract(fetched, base, archive_format)
    return fetched


def _extract(archive: str, directory: str, archive_format: Any) -> None:
    if not file_utils.extract_archive(archive, directory, archive_format):
        warnings.warn(
            f"{archive} is no archive of the format {archive_format!r}, and was not extracted.", UserWarning, 3
        )
