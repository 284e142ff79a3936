"""The command line for a parent that must not be outlived: `python -m lockstep._launch.owned PID COMMAND ...`."""

from __future__ import annotations

import sys

from lockstep._launch.child import die_with
from lockstep._launch.cli import main

if __name__ == "__main__":
    # The kernel of a notebook may be killed or restarted: its tasks go with it, the warden sees to that.
    die_with(int(sys.argv[1]))
    main(sys.argv[2:])
