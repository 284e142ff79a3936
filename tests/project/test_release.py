"""What a release shows: addresses, versions, links that work away from the repository."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import release_check  # noqa: E402  A script, not of a package.

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_a_release_from_where_the_project_lives_is_right() -> None:
    assert release_check.faults(f"v{PROJECT['version']}", PROJECT["urls"]["Repository"]) == []


def test_a_release_of_another_version_or_place_is_refused() -> None:
    assert len(release_check.faults("v9.9.9", PROJECT["urls"]["Repository"])) == 3
    assert "https://host/fork" in release_check.faults(f"v{PROJECT['version']}", "https://host/fork")[0]


def test_links_of_the_readme_are_whole_and_lead_to_files() -> None:
    base = f"{PROJECT['urls']['Repository']}/blob/main/"
    links = re.findall(r"\]\(([^)#]+)", (ROOT / "README.md").read_text())
    assert len(links) > 15
    for link in links:
        assert link.startswith(base), f"{link}: a package index shows the README without the files beside it"
        assert (ROOT / link.removeprefix(base)).exists(), link


def test_the_addresses_stand_in_few_places() -> None:
    """Elsewhere they are read from pyproject.toml."""
    name = PROJECT["urls"]["Repository"].partition("//")[2]
    for part in ("src", "docs", "scripts", ".github", "tests"):
        for path in (ROOT / part).rglob("*"):
            if path.suffix in (".py", ".md", ".yml", ".yaml"):
                assert name not in path.read_text(encoding="utf-8"), path
