"""`python -m lockstep._launch` is `lockstep`."""

from __future__ import annotations

from lockstep._launch.cli import main

main()
