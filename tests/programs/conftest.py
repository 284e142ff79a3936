"""Programs that lie beside the project can only be run where they do."""

from __future__ import annotations

from tests.support.cluster import ROOT

collect_ignore = [] if (ROOT.parent / "shared" / "programs" / "run.py").is_file() else ["test_programs.py"]
