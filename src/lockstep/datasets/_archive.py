"""Archives that are read in memory; nothing is unpacked to the disk."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Callable

from lockstep.errors import InputError


def read_members(content: bytes, wanted: Callable[[str], bool], name: str) -> dict[str, bytes]:
    """Returns the files of a .tar.gz archive whose names are wanted.

    Args:
        content: The archive.
        wanted: Tells by its name whether a file is.
        name: Of the archive, for messages.

    Raises:
        InputError: If the archive is damaged.
    """
    contents: dict[str, bytes] = {}
    try:
        with gzip.open(io.BytesIO(content)) as unzipped:
            # As a stream: going back in a gzip file would decompress it again.
            with tarfile.open(fileobj=unzipped, mode="r|") as archive:
                for member in archive:
                    # Files alone: a link or a device in an archive names something outside of it.
                    if member.isfile() and wanted(member.name):
                        file = archive.extractfile(member)
                        contents[member.name] = file.read() if file else b""
            # The checksum stands at the end.
            # tarfile stops at the archive's end marker; gzip checks its checksum only at the end of the file.
            while unzipped.read(1 << 20):
                pass
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise InputError(f"{name} is no complete .tar.gz archive: {error}. Replace it with a fresh copy.") from error
    return contents
