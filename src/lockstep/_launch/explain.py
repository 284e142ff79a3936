"""The pages on errors, in the terminal."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.markdown import Markdown

from lockstep._messages.reading import pages, text_of, title_of
from lockstep._messages.search import MessageIndex
from lockstep._messages.sources import messages
from lockstep.errors import ArgumentError

# Pages that are named below the one that is shown.
_MOST_OTHERS = 3


def explain(words: Sequence[str]) -> None:
    """Prints the page on a kind of error, by its name or by words of a message; without any the list of all pages.

    Raises:
        ArgumentError: If there is no such page, and no message with such words.
    """
    if not words:
        print("\n".join(f"{name:24}{title_of(name)}" for name in pages()))
        return
    text, others = " ".join(words), list[str]()
    page = text
    if page not in pages():
        # The source is read for it, which takes a few seconds: never for the name of a page.
        found = MessageIndex(messages()).pages_for(text) if len(text.split()) > 1 else []
        if not found:
            near = difflib.get_close_matches(text, pages(), n=3, cutoff=0.4)
            guess = f" The nearest are {', '.join(near)}." if near else ""
            raise ArgumentError(
                f"`lockstep explain` takes the name of a page, or the text of an error. Received: {text!r}.{guess} "
                "`lockstep explain` lists all."
            )
        page, *others = found
    _show(text_of(page))
    if others:
        # Not a part of the page, which may be piped on.
        names = ", ".join(others[:_MOST_OTHERS])
        print(
            f"This is the page {page}, whose messages are nearest to these words. The next are {names}.",
            file=sys.stderr,
        )


def _show(text: str) -> None:
    if sys.stdout.isatty():
        Console().print(Markdown(text))
    else:
        print(text, end="")
