"""`python -m lockstep` is `lockstep`."""

from __future__ import annotations

from lockstep._launch.cli import main

if __name__ == "__main__":
    main()
