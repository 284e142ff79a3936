"""The pages on errors, in the terminal."""

from __future__ import annotations

import difflib
import sys

from rich.console import Console
from rich.markdown import Markdown

from lockstep._messages.reading import pages, text_of, title_of
from lockstep.errors import ArgumentError


def explain(page: str | None) -> None:
    """Prints the page on a kind of error, or without one the list of all pages.

    Raises:
        ArgumentError: If there is no such page.
    """
    if page is None:
        print("\n".join(f"{name:24}{title_of(name)}" for name in pages()))
        return
    try:
        text = text_of(page)
    except KeyError:
        near = difflib.get_close_matches(page, pages(), n=3, cutoff=0.4)
        guess = f" The nearest are {', '.join(near)}." if near else ""
        raise ArgumentError(
            f"`lockstep explain` takes the name of a page. Received: {page!r}.{guess} `lockstep explain` lists all."
        ) from None
    if sys.stdout.isatty():
        Console().print(Markdown(text))
    else:
        print(text, end="")
