"""Commands of the command line: `scan`, `import-checkpoint` and `export`."""

from __future__ import annotations

from pathlib import Path

from lockstep._migrate._scan import scan_path
from lockstep._migrate._scan_report import print_report, report_json
from lockstep.checkpoint.internal import replacing


def scan(path: Path, write: bool, as_json: bool) -> int:
    """Scans programs, prints what was found, and returns the exit code: 1 if a name is missing or a file unreadable."""
    scans = list(scan_path(path))
    if write:
        for one in scans:
            if one.content is not None:
                # The file is another one afterwards; scripts stay executable.
                mode = one.path.stat().st_mode
                with replacing(str(one.path)) as file:
                    file.write(one.content)
                one.path.chmod(mode)
    if as_json:
        print(report_json(scans, write))
    elif not scans:
        print(f"No program at {path} uses TensorFlow or Keras.")
    else:
        print_report(scans, write)
    return int(any(one.error or one.names("missing") for one in scans))


def import_checkpoint(source: Path, output: Path | None, model: str | None) -> None:
    """Lists a checkpoint of TensorFlow, or writes it in another form."""
    from lockstep._migrate._import_checkpoint import import_checkpoint, list_checkpoint, prefix_of

    prefix = prefix_of(source)
    if output is None:
        list_checkpoint(prefix)
        return
    for line in import_checkpoint(prefix, output, model):
        print(line)


def export(source: str, output: Path, safe_mode: bool) -> None:
    """Writes a model for another runtime."""
    # Imported here: a scan needs neither this nor the models that it loads.
    from lockstep._migrate._export import export_model

    for line in export_model(source, output, safe_mode):
        print(line)
