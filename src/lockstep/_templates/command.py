"""`lockstep template`: prints a deployment file, or writes it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lockstep._templates.compose import compose
from lockstep._templates.job import Job
from lockstep._templates.jobset import jobset
from lockstep._templates.kubeflow import kubeflow
from lockstep._templates.kubernetes import kubernetes
from lockstep._templates.ray import ray
from lockstep._templates.slurm import RESOLVER_PORT, slurm
from lockstep._templates.text import shell
from lockstep.errors import ArgumentError


class Platform(StrEnum):
    """Platforms that there is a template for."""

    KUBERNETES = "kubernetes"
    JOBSET = "jobset"
    KUBEFLOW = "kubeflow"
    SLURM = "slurm"
    RAY = "ray"
    COMPOSE = "compose"


TEMPLATES: dict[Platform, Callable[[Job], str]] = {
    Platform.KUBERNETES: kubernetes,
    Platform.JOBSET: jobset,
    Platform.KUBEFLOW: kubeflow,
    Platform.SLURM: slurm,
    Platform.RAY: ray,
    Platform.COMPOSE: compose,
}
# Options that a platform has no use for.
_WITHOUT = {
    (Platform.SLURM, "image"): "its tasks run in the environment that the script activates",
    (Platform.RAY, "image"): "its tasks run in the environment of the Ray cluster",
    (Platform.RAY, "port"): "its tasks take free ports",
}
_DEFAULT_PORTS = {Platform.SLURM: RESOLVER_PORT}


def template(
    platform: Annotated[Platform, typer.Argument(help="What starts the tasks.", show_default=False)],
    program: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROGRAM [ARGS]]",
            help="What each task runs: a script, or -m and a module, after -- if it has options. Default: train.py",
            show_default=False,
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="Of the job, its hosts and its objects.")] = "train",
    image: Annotated[
        str | None,
        typer.Option(help=f"The container image, with the program in it. Default: {Job.image}", show_default=False),
    ] = None,
    workers: Annotated[int, typer.Option(metavar="N", help="Number of worker tasks.")] = 2,
    chief: Annotated[bool, typer.Option("--chief", help="A chief task beside the workers.")] = False,
    evaluator: Annotated[bool, typer.Option("--evaluator", help="An evaluator task too.")] = False,
    ps: Annotated[int, typer.Option("--ps", metavar="M", help="Number of parameter servers.")] = 0,
    gpus: Annotated[int, typer.Option(metavar="G", help="NVIDIA GPUs of each task that computes.")] = 0,
    cpus: Annotated[int, typer.Option(metavar="C", help="Processors of each task.")] = Job.cpus,
    memory: Annotated[int, typer.Option(metavar="GIB", help="Memory of each task.")] = Job.memory,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="P",
            help=f"The port that each task listens on. Default: {Job.port}, with Slurm {RESOLVER_PORT}",
            show_default=False,
        ),
    ] = None,
    shared: Annotated[str, typer.Option(metavar="DIR", help="The directory that all tasks share.")] = Job.shared,
    grace: Annotated[
        int, typer.Option(metavar="S", help="Seconds that tasks have to save, from SIGTERM on.")
    ] = Job.grace,
    max_restarts: Annotated[
        int, typer.Option(metavar="R", help="How often all are started again after a failure.")
    ] = Job.max_restarts,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write it there, where no file is yet. Default: print it."),
    ] = None,
) -> None:
    """Print a complete, commented deployment file for Kubernetes, JobSet, Kubeflow, Slurm, Ray or Docker Compose."""
    # Refused, not ignored: who gives an image expects it to be used.
    for option, given in (("image", image), ("port", port)):
        if given is not None and (reason := _WITHOUT.get((platform, option))):
            raise ArgumentError(f"--{option} has no meaning for {platform}: {reason}. Received: {given}. Leave it out.")
    job = Job(
        name=name,
        image=Job.image if image is None else image,
        program=tuple(program or Job.program),
        workers=workers,
        chief=chief,
        evaluator=evaluator,
        ps=ps,
        gpus=gpus,
        cpus=cpus,
        memory=memory,
        port=_DEFAULT_PORTS.get(platform, Job.port) if port is None else port,
        shared=shared,
        grace=grace,
        max_restarts=max_restarts,
        file=Job.file if output is None else shell([output.name]),
    )
    text = TEMPLATES[platform](job)
    if output is None:
        print(text, end="")
        return
    # "x": a file that somebody has edited is not replaced.
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ArgumentError(
            f"--output must name a file that is not there yet, in a directory that can be written to. Received: "
            f"{str(output)!r}: {error.strerror}. Give another one."
        ) from error
    typer.echo(f"Written: {output}. Its first lines say how to use it.", err=True)
