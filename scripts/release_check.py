"""Refuses a release whose tag is not the package's version, or from elsewhere than [project.urls] says.

python scripts/release_check.py v0.1.0 https://host/owner/name
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def faults(tag: str, repository: str) -> list[str]:
    """Returns what keeps a version from being published."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    code = (ROOT / "src" / "lockstep" / "__init__.py").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    versions = {
        "pyproject.toml": project["version"],
        "lockstep.__version__": re.findall(r'__version__ = "(.*)"', code)[0],
        "CITATION.cff": re.findall(r"(?m)^version: (.*)$", citation)[0],
    }
    wrong = [f"{place} says {v}, and the tag {tag}." for place, v in versions.items() if f"v{v}" != tag]
    # Whoever publishes a fork under these addresses sends its users elsewhere.
    if (expected := project["urls"]["Repository"]) != repository:
        wrong.append(
            f"[project.urls] says {expected}, and this is {repository}: correct the addresses in pyproject.toml."
        )
    if expected not in citation:
        wrong.append(f"CITATION.cff does not name {expected}.")
    return wrong


if __name__ == "__main__":
    found = faults(*sys.argv[1:3])
    print("\n".join(found))
    sys.exit(bool(found))
