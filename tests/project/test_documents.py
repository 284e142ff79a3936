"""Documents name files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# A path of the source in backticks, such as `_engine/step/program.py` or `data/`.
_PATH = re.compile(r"`([\w/]+(?:\.py|/))`")


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/design.md"])
def test_files_that_a_page_names_exist(page: str) -> None:
    files = [path.as_posix() for part in ("src", "tests") for path in (ROOT / part).rglob("*.py")]
    names = set(_PATH.findall((ROOT / page).read_text()))
    assert len(names) > 5
    missing = [name for name in names if not any(f"/{name}" in f for f in files)]
    assert not missing, f"{page} names files that are not there: {missing}"


def test_links_between_documents_lead_somewhere() -> None:
    # These are made when the site is built, and followed there.
    made = [ROOT / "docs" / part for part in ("gallery", "messages", "project", "reference")]
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            path = (page.parent / target).resolve()
            assert path.exists() or path.parent in made, f"{page.name} links to {target}"
