"""The commands of `lockstep`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from lockstep._launch.launcher import launch
from lockstep._launch.options import shield_module
from lockstep.errors import LockstepError

app = typer.Typer(name="lockstep", add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def lockstep() -> None:
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
    evaluator: Annotated[bool, typer.Option("--evaluator", help="Start an evaluator task too.")] = False,
    devices_per_worker: Annotated[
        int | None, typer.Option(metavar="D", help="Virtual CPU devices of each task.")
    ] = None,
    port_base: Annotated[
        int | None,
        typer.Option(metavar="P", help="Worker i listens on port P+i. Default: free ports."),
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
) -> None:
    """Run a program as the tasks of one cluster on this machine, each with its TF_CONFIG.

    When a worker fails, all tasks are ended, the first failure is printed last, and its exit code is returned; or all
    are started again, as often as --max-restarts allows.
    """
    code = launch(
        program,
        workers=workers,
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
    )
    raise typer.Exit(code)


# In a checkout a link to examples/mnist.py, in an installed package a copy of it.
PROGRAM = Path(__file__).parent / "programs" / "mnist.py"


@app.command()
def demo(
    workers: Annotated[int, typer.Option(metavar="N", help="Number of worker tasks.")] = 2,
    epochs: Annotated[int, typer.Option(metavar="E", min=1, help="Passes over the training images.")] = 3,
    output_dir: Annotated[Path, typer.Option(metavar="DIR", help="Where the trained model is saved.")] = Path(
        "runs/mnist"
    ),
) -> None:
    """Train a small network on MNIST on several workers of this machine, or on a sample of it without network."""
    arguments = ["--epochs", str(epochs), "--output-dir", str(output_dir)]
    raise typer.Exit(launch([str(PROGRAM), *arguments], workers=workers))


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exit; wrong arguments exit with code 2 and a message, without a traceback."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        app(shield_module(arguments), prog_name="lockstep")
    except LockstepError as error:
        print(f"lockstep: error: {error}", file=sys.stderr)
        sys.exit(2)
