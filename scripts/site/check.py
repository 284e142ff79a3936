"""Follows every link of the built site, and checks that every public name is in the reference.

`python scripts/site/check.py site` follows links within the site; `--external` also those to other sites, one by one.
"""

from __future__ import annotations

import argparse
import ast
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import links
import reference
import snippets

_TIMEOUT_SECONDS = 10.0


class _Page(HTMLParser):
    """Links and anchors of a page, and whether each public name has text below its heading."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = {""}
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Takes the links and the anchor of an element."""
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.add(value)
            if name == "id" and value:
                self.anchors.add(value)


def _dead_links(site: Path, address: str) -> Iterator[str]:
    pages = {file: _Page(file) for file in site.rglob("*.html")}
    for file, page in sorted(pages.items()):
        # 404.html is served at any depth: its links are addresses from the root.
        for link in page.links if file.name != "404.html" else ():
            if link.startswith(address):
                link = "/" + link.removeprefix(address)
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            path = urllib.parse.unquote(parts.path)
            target = (site / path.lstrip("/") if path.startswith("/") else file.parent / path) if path else file
            target = target.resolve()
            target = target / "index.html" if target.is_dir() else target
            anchor = urllib.parse.unquote(parts.fragment)
            if not target.exists():
                yield f"{file.relative_to(site)}: {link} leads nowhere"
            elif target in pages and anchor not in pages[target].anchors and not anchor.startswith("__"):
                yield f"{file.relative_to(site)}: {link}: the page has no such part"


def _external(site: Path, address: str) -> set[str]:
    every = {link for file in site.rglob("*.html") for link in _Page(file).links}
    return {e for e in every if e.startswith("http") and not e.startswith(address)}


def _dead_external(site: Path, address: str) -> Iterator[str]:
    for link in sorted(_external(site, address)):
        request = urllib.request.Request(link, method="HEAD", headers={"User-Agent": "lockstep-docs"})
        try:
            urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS).close()
        except (urllib.error.URLError, TimeoutError) as error:
            yield f"{link}: {error}"


def _missing_names(site: Path) -> Iterator[str]:
    modules = reference.public_names()
    for module, names in modules.items():
        file = site / "reference" / module / "index.html"
        if not file.exists():
            yield f"{module} has no page in the reference"
            continue
        anchors = _Page(file).anchors
        for name in reference.documented(module, names, modules):
            if not anchors & {f"{module}.{name}", reference.source_of(f"{module}.{name}")}:
                yield f"{module}.{name} is not in the reference"


def main() -> None:
    """Prints what is wrong, and exits with 1 if anything is."""
    parser = argparse.ArgumentParser(description=ast.get_docstring(ast.parse(Path(__file__).read_text())))
    parser.add_argument("site", type=Path)
    parser.add_argument("--external", action="store_true", help="follow links to other sites, too")
    arguments = parser.parse_args()
    site = arguments.site.resolve()
    address = links.addresses()["Documentation"] + "/"
    wrong = [*_dead_links(site, address), *_missing_names(site)]
    if arguments.external:
        wrong += _dead_external(site, address)
    sys.stderr.writelines(f"{fault}\n" for fault in wrong)
    pages = len(list(site.rglob("*.html")))
    modules = reference.public_names()
    names = [f"{m}.{n}" for m in modules for n in reference.documented(m, modules[m], modules)]
    shown = len(set(names) & snippets.by_name().keys())
    not_followed = "" if arguments.external else f"; {len(_external(site, address))} links to other sites not followed"
    print(f"{pages} pages, {len(names)} public names, {shown} with an example; {len(wrong)} faults{not_followed}.")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
