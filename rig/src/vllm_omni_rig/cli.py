# SPDX-License-Identifier: Apache-2.0
"""The command ``vllm-omni-rig``."""

import importlib
import importlib.metadata
import signal
import sys
import time
from pathlib import Path
from types import FrameType

import click

from vllm_omni_rig import environment
from vllm_omni_rig.scripted import KINDS
from vllm_omni_rig.server import RigError, Server, start

EXIT_COULD_NOT_START = 2
EXIT_SERVER_ENDED = 3


class _Stopped(Exception):  # noqa: N818
    """SIGINT or SIGTERM has arrived."""


def _stop(number: int, frame: FrameType | None) -> None:
    raise _Stopped


@click.group()
@click.version_option(package_name="vllm-omni-rig")
def main() -> None:
    """The real vLLM-Omni on a CPU, with no model download and faults on demand."""


@main.command()
@click.option("--stages", type=click.IntRange(1, 2), default=2, show_default=True, help="Stages of the pipeline.")
@click.option("--scripted", type=click.Choice([*KINDS]), help="Serve with the scripted engine of that kind.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port on the loopback interface; by default a free one.")
@click.option(
    "--tree",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory with a vllm_omni package to use instead of the installed one.",
)
@click.option("--log", type=click.Path(dir_okay=False, path_type=Path), help="File for the server's output.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def serve(
    stages: int,
    scripted: str | None,
    port: int | None,
    tree: Path | None,
    log: Path | None,
    arguments: tuple[str, ...],
) -> None:
    """Start the server, print READY and its address, and stop it at SIGINT or SIGTERM.

    ARGUMENTS, after --, are added to vLLM-Omni's command line. Exit code 0 after a signal, 2 if the server could not be
    started, 3 if it ended by itself.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        server = start(
            stages,
            tree=tree,
            port=port,
            scripted=scripted,
            arguments=arguments,
            log=log,
            progress=lambda text: click.echo(text, err=True),
        )
    except RigError as error:
        click.echo(str(error), err=True)
        sys.exit(EXIT_COULD_NOT_START)
    except _Stopped:
        sys.exit(0)
    with server:
        sys.exit(_watch(server))


def _watch(server: Server) -> int:
    try:
        click.echo(f"READY {server.url}")
        click.echo(f"The log is {server.log}", err=True)
        while server.alive():
            time.sleep(0.5)
        server.wait_until_dead(30)
    except _Stopped:
        click.echo("Stopping the server and its stages …", err=True)
        return 0
    click.echo(f"The server ended by itself, with exit code {server.exit_code}; its log is {server.log}", err=True)
    return EXIT_SERVER_ENDED


@main.command("environment")
def show_environment() -> None:
    """Import what needs a workaround in this Python environment, and say what was applied and why."""
    environment.activate()
    importlib.import_module("torchvision")
    importlib.import_module("torchaudio")
    importlib.metadata.version("vllm")
    click.echo(environment.describe())


if __name__ == "__main__":
    main()
