"""Pages that follow from the source: the reference, the messages, and files of the repository that are pages."""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Callable

import griffe
import links
import mkdocs_gen_files
import reference
import snippets

from lockstep._messages.reading import pages, text_of, title_of
from lockstep._messages.sources import Message, messages


def _write(page: str, text: str) -> None:
    with mkdocs_gen_files.open(page, "w") as file:
        file.write(text)


def _escaped(text: str) -> str:
    """Returns text that Markdown shows as it is."""
    # Brackets as entities: Python's Markdown takes "\\<" for two characters.
    return html.escape("".join(f"\\{c}" if c in "\\`*_{}[]#|" else c for c in text), quote=False)


def write_messages() -> None:
    """Writes a page for each kind of error: causes and remedies, then all texts of that kind, for the search."""
    of: dict[str, list[Message]] = defaultdict(list)
    for message in messages():
        of[message.page].append(message)
    rows = [f"| [{title_of(name)}]({name}.md) | `{name}` | {len(of[name])} |" for name in pages()]
    _write(
        "messages/index.md",
        "# Messages\n\nEvery error of lockstep says the rule, what was received, and what to do next. Below it stands "
        "the name of its page here, which `lockstep explain PAGE` prints, too. To find a message, put some of its "
        "words into the search field above.\n\n| page | name | texts |\n|---|---|--:|\n" + "\n".join(rows) + "\n",
    )
    for name in pages():
        texts: dict[str, set[str]] = defaultdict(set)
        for message in of[name]:
            texts[message.kind].add(message.text)
        # A section for each class: the search ranks short sections higher than one long list.
        listed = "".join(
            f"### {kind}\n\n" + "".join(f"* {_escaped(text)}\n" for text in sorted(texts[kind], key=str.lower)) + "\n"
            for kind in sorted(texts)
        )
        every = f"\n## All texts\n\n&lt;Words in such brackets&gt; stand for values.\n\n{listed}" if listed else ""
        # Whoever searches for a message means its page, not one that has the same words.
        _write(f"messages/{name}.md", "---\nsearch:\n  boost: 2\n---\n" + text_of(name) + every)


def write_files() -> None:
    """Writes the pages of files that stand elsewhere in the repository, because people look for them there."""
    for file, page in links.PAGES.items():
        if page.startswith("project/"):
            _write(page, links.relink((links.ROOT / file).read_text(encoding="utf-8"), file, page))


def write_pictures() -> None:
    """Writes the pictures of the gallery, which `make bench` has drawn, into the site."""
    for picture in ("full.svg", "scaling.svg"):
        with mkdocs_gen_files.open(f"gallery/{picture}", "wb") as file:
            file.write((links.ROOT / "benchmarks" / "results" / picture).read_bytes())


def block_of() -> Callable[[str], str]:
    """Returns the function that makes the block of a public name: read from its source, or as inspected."""
    package = griffe.load("lockstep", search_paths=["src"])
    public = reference.public_names()

    def own(member: griffe.Alias) -> bool:
        # What a public class has is described there; what a private one has, at each class that inherits it.
        owner = member.final_target.parent
        if owner is None or member.name.startswith("_"):
            return False
        return not any(owner.name in names for names in public.values())

    def block(name: str) -> str:
        module, _, last = name.rpartition(".")
        try:
            found = package[name.removeprefix("lockstep.")]
            found = found.final_target if found.is_alias else found
        except (KeyError, griffe.AliasResolutionError):
            found = None
        if found is None or not found.docstring:
            return f"::: lockstep_inspected.{module.replace('.', '_')}.{last}"
        inherited = sorted(n for n, m in found.inherited_members.items() if own(m)) if found.is_class else []
        return f"::: {name}\n    options:\n      inherited_members: {inherited or 'false'}"

    return block


reference.write(_write, snippets.by_name(), block_of())
write_messages()
write_files()
write_pictures()
