"""Settings and links of the site that follow from pyproject.toml and from where files are."""

from __future__ import annotations

import os
from typing import Any

import links


def on_config(config: Any) -> Any:
    """Sets the addresses of the site and of the repository; LOCKSTEP_DOCS_URL says another one for the site."""
    addresses = links.addresses()
    config.site_url = (os.environ.get("LOCKSTEP_DOCS_URL") or addresses["Documentation"]).rstrip("/") + "/"
    config.repo_url = addresses["Repository"]
    config.repo_name = "Source"
    return config


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Returns a page whose links to files outside of docs/ lead somewhere on the site, too."""
    return links.relink(markdown, f"docs/{page.file.src_uri}", page.file.src_uri)
