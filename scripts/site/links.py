"""Links between the files of the repository, as links of the site."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
# Files outside of docs/ that are pages, too.
PAGES = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "README.md": "index.md",
    "benchmarks/README.md": "project/benchmarks.md",
}
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)(?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?(?=\))")


def addresses() -> dict[str, str]:
    """Returns [project.urls] of pyproject.toml, the one place that names where the project lives."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {name: address.rstrip("/") for name, address in project["urls"].items()}


def relink(text: str, file: str, page: str) -> str:
    """Returns Markdown whose links to files of the repository lead to their pages, or to the files in the repository.

    Args:
        text: The Markdown.
        file: The path in the repository of the file that it was written for.
        page: The path of its page below docs/.
    """
    folder = PurePosixPath(file).parent

    def replace(link: re.Match[str]) -> str:
        target = os.path.normpath(folder / link["target"])
        anchor = link["anchor"] or ""
        if target.startswith("docs/"):
            uri = target.removeprefix("docs/")
        elif target in PAGES:
            uri = PAGES[target]
        elif (ROOT / target).exists():
            kind = "tree" if (ROOT / target).is_dir() else "blob"
            return f"{addresses()['Repository']}/{kind}/main/{target}{anchor}"
        else:
            return link[0]
        return os.path.relpath(uri, PurePosixPath(page).parent) + anchor

    return _LINK.sub(replace, text)
