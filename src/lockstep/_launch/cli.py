"""The commands of `lockstep`."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from lockstep import __version__
from lockstep._doctor.command import doctor
from lockstep._launch.explain import explain as print_page
from lockstep._launch.launcher import launch
from lockstep._launch.options import shield_module
from lockstep._migrate.command import export, import_checkpoint, scan
from lockstep._templates.command import template
from lockstep.errors import ArgumentError, LockstepError
from lockstep.report.internal import compare as show_beside
from lockstep.report.internal import watch as show
from lockstep.report.internal import write_report

app = typer.Typer(name="lockstep", no_args_is_help=True, pretty_exceptions_enable=False)


def _print_versions(wanted: bool) -> None:
    if wanted:
        print(versions())
        raise typer.Exit


def versions() -> str:
    """Returns the versions of lockstep, of what its numbers depend on, and of Python, in a line."""
    libraries = (f"{name} {metadata.version(name)}" for name in ("keras", "jax"))
    return f"lockstep {__version__} ({', '.join(libraries)}, Python {platform.python_version()})"


@app.callback()
def lockstep(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_versions, is_eager=True, help="Print the versions and exit.")
    ] = False,
) -> None:
    """Synchronous data-parallel training for Keras 3 on JAX."""


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    program: Annotated[
        list[str],
        typer.Argument(
            metavar="PROGRAM [ARGS]",
            help="What each task runs: a script, or -m and a module. What follows belongs to it, options included.",
            show_default=False,
        ),
    ],
    workers: Annotated[int, typer.Option(metavar="N", help="Number of worker tasks.", show_default=False)],
    chief: Annotated[
        bool,
        typer.Option(
            "--chief", help="Start a chief task beside the workers: it trains too, and writes in their place."
        ),
    ] = False,
    servers: Annotated[
        int, typer.Option("--ps", metavar="M", help="Number of parameter servers.", show_default=False)
    ] = 0,
    evaluator: Annotated[bool, typer.Option("--evaluator", help="Start an evaluator task too.")] = False,
    devices_per_worker: Annotated[
        int | None, typer.Option(metavar="D", help="Virtual CPU devices of each task.")
    ] = None,
    port_base: Annotated[
        int | None,
        typer.Option(
            metavar="P", help="The first task listens on port P, the next one on P+1, ... Default: free ports."
        ),
    ] = None,
    log_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Also write each task's output, as it is, to DIR/worker-0.log and so on. "
            "A log that is already there is kept as worker-0.log.1, .2, ...",
        ),
    ] = None,
    join_timeout: Annotated[
        float | None, typer.Option(metavar="S", help="Seconds that a task waits for the others to arrive.")
    ] = None,
    max_restarts: Annotated[
        int,
        typer.Option(metavar="R", help="How often to start all tasks again after one has failed."),
    ] = 0,
    max_preemptions: Annotated[
        int | None,
        typer.Option(
            metavar="R",
            help="How often to start all tasks again after one was asked to end (exit code 143). "
            "Default: as --max-restarts.",
            show_default=False,
        ),
    ] = None,
    restart_delay: Annotated[
        float,
        typer.Option(
            metavar="S", help="Seconds before a restart that follows one without new steps; doubles, up to 60."
        ),
    ] = 1.0,
    grace: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Seconds that tasks have to end after SIGTERM or Ctrl-C. Default: LOCKSTEP_GRACE (25) and 5 more.",
            show_default=False,
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Append a line of JSON for each failure and each return to training."),
    ] = None,
    nnodes: Annotated[int, typer.Option(metavar="N", help="Number of machines; each starts --workers of its own.")] = 1,
    node_rank: Annotated[
        int | None, typer.Option(metavar="R", help="This machine's number, from 0.", show_default=False)
    ] = None,
    rendezvous: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where the machines meet: a free port of the machine of rank 0.",
            show_default=False,
        ),
    ] = None,
    node_address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            help="This machine's name or address for the others. Default: that from which it reaches the rendezvous.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run a program as the tasks of one cluster on this machine, or on several, each with its TF_CONFIG.

    When a worker fails, all tasks are ended, the first failure is printed last, and its exit code is returned; or all
    are started again, as often as --max-restarts allows. With --ps, a task that fails is started again by itself.
    """
    code = launch(
        program,
        workers=workers,
        chief=chief,
        servers=servers,
        evaluator=evaluator,
        devices_per_worker=devices_per_worker,
        port_base=port_base,
        log_dir=log_dir,
        join_timeout=join_timeout,
        max_restarts=max_restarts,
        max_preemptions=max_preemptions,
        restart_delay=restart_delay,
        grace=grace,
        report=report,
        nnodes=nnodes,
        node_rank=node_rank,
        rendezvous=rendezvous,
        node_address=node_address,
    )
    raise typer.Exit(code)


# In a checkout links to the files of examples/, in an installed package copies of them.
PROGRAM = Path(__file__).parent / "programs" / "mnist.py"


@app.command()
def demo(
    workers: Annotated[int, typer.Option(metavar="N", help="Number of worker tasks.")] = 2,
    epochs: Annotated[int, typer.Option(metavar="E", min=1, help="Passes over the training images.")] = 3,
    output_dir: Annotated[Path, typer.Option(metavar="DIR", help="Where the trained model is saved.")] = Path(
        "runs/mnist"
    ),
    copy: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Train nothing: copy all example programs into a new directory.")
    ] = None,
) -> None:
    """Train a small network on MNIST on several workers of this machine, or on a sample of it without network."""
    if copy is not None:
        _copy_examples(copy)
        return
    arguments = ["--epochs", str(epochs), "--output-dir", str(output_dir)]
    raise typer.Exit(launch([str(PROGRAM), *arguments], workers=workers, log_dir=output_dir))


def _copy_examples(directory: Path) -> None:
    try:
        shutil.copytree(PROGRAM.parent, directory, ignore=shutil.ignore_patterns("__pycache__"))
    except OSError as error:
        raise ArgumentError(
            f"--copy must name a directory that is not there yet, where one can be made. Received: {str(directory)!r}: "
            f"{error.strerror or error}. Give another one."
        ) from error
    typer.echo(f"Example programs: {directory}. Start one with: lockstep run --workers 2 {directory / 'mnist.py'}")


@app.command()
def report(
    log_dir: Annotated[Path, typer.Argument(metavar="DIR", help="The log directory of a run.", show_default=False)],
) -> None:
    """Write report.html of the newest run that has logged to a directory.

    The log directory of a run is that of lockstep run --log-dir (LOCKSTEP_LOG_DIR), else the log_dir of a TensorBoard
    or RunReport callback, else an Estimator's model_dir. Every run leaves its report there; this writes it anew, such
    as for a run that was killed.
    """
    typer.echo(write_report(log_dir))


@app.command()
def watch(
    log_dir: Annotated[Path, typer.Argument(metavar="DIR", help="The log directory of a run.", show_default=False)],
    once: Annotated[bool, typer.Option("--once", help="Show it as it is now, and return.")] = False,
) -> None:
    """Show a run while it goes on: all tasks, for whom they wait, and the latest values. Ends with it, or by Ctrl-C."""
    from rich.console import Console

    try:
        show(log_dir, Console(), once)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@app.command()
def compare(
    log_dirs: Annotated[
        list[Path], typer.Argument(metavar="DIR DIR ...", help="The log directories of runs.", show_default=False)
    ],
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a page with their curves in the same charts.")
    ] = None,
) -> None:
    """Show runs beside each other: what came out, how fast, where the time went, and which settings differ."""
    from rich.console import Console

    if len(log_dirs) < 2:
        raise ArgumentError(f"compare takes at least two log directories, received {len(log_dirs)}. Name another one.")
    show_beside(log_dirs, Console(), output)


# A copied message may hold words that look like options.
@app.command(context_settings={"ignore_unknown_options": True})
def explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PAGE | WORDS]",
            help="The page that an error names, or words of its text. Default: list all.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print causes and remedies of a kind of error, as the documentation has them."""
    print_page(words or [])


app.command()(doctor)
app.command()(template)
app.command()(scan)
app.command()(import_checkpoint)
app.command()(export)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exit; wrong arguments exit with code 2 and a message, without a traceback."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        app(shield_module(arguments), prog_name="lockstep")
    except LockstepError as error:
        print("\n".join([f"lockstep: error: {error}", *error.__notes__]), file=sys.stderr)
        sys.exit(2)
