"""How to get to a page: its command, its address on the site, and its text, which is part of the package."""

from __future__ import annotations

import functools
import importlib.metadata
import os
from importlib import resources
from typing import Final

# Another place where the site is served, such as inside a company.
SITE_VARIABLE: Final = "LOCKSTEP_DOCS_URL"
_PACKAGE: Final = "lockstep._messages"
_TEXTS: Final = "texts"


# Once in a process: metadata is a file that is parsed, and the address cannot change.
@functools.cache
def _packaged_site() -> str:
    """Returns the address under [project.urls] of the installed package, or "" if it names none."""
    try:
        urls = importlib.metadata.metadata("lockstep").get_all("Project-URL") or []
    except importlib.metadata.PackageNotFoundError:
        return ""
    labels = {label.strip().lower(): address.strip() for label, _, address in (url.partition(",") for url in urls)}
    return labels.get("documentation", "")


def site() -> str:
    """Returns the address of the documentation, with a slash at its end; "" if none is known."""
    address = os.environ.get(SITE_VARIABLE) or _packaged_site()
    return f"{address.rstrip('/')}/" if address else ""


_READ_ON: Final = "Read on: lockstep explain "


def is_pointer(line: str) -> bool:
    """Returns whether a line of output is one that `pointer` has made."""
    return line.startswith(_READ_ON)


def pointer(page: str) -> str:
    """Returns the line below an error that says where to read on: the command, which needs no network, goes first."""
    command = f"{_READ_ON}{page}"
    return f"{command} ({address}messages/{page}/)" if (address := site()) else command


def pages() -> list[str]:
    """Returns the names of all pages, sorted."""
    # As data of the package: the text is that of the installed release, and needs no network.
    names = [entry.name for entry in resources.files(_PACKAGE).joinpath(_TEXTS).iterdir()]
    return sorted(name.removesuffix(".md") for name in names if name.endswith(".md"))


def text_of(page: str) -> str:
    """Returns a page's Markdown; raises `KeyError` if there is no such page."""
    if page not in pages():
        raise KeyError(page)
    return resources.files(_PACKAGE).joinpath(_TEXTS, f"{page}.md").read_text(encoding="utf-8")


def title_of(page: str) -> str:
    """Returns a page's heading."""
    return text_of(page).partition("\n")[0].removeprefix("# ")
