# SPDX-License-Identifier: Apache-2.0
"""`omni-errors probe URL`: the command line around `probe.run`."""

import json
import sys
from pathlib import Path

import click
from rich.console import Console

from vllm_omni_errors.probe.check import Check
from vllm_omni_errors.probe.context import Pace
from vllm_omni_errors.probe.record import ProbeError, Report, Result
from vllm_omni_errors.probe.runner import run
from vllm_omni_errors.report import html, text

EXIT_FINDINGS = 1
EXIT_NOT_RUN = 2


class ProgressLine:
    """Says on stderr what is being done; on a terminal in one line that is written over."""

    def __init__(self, label: str = "") -> None:
        self._label = f"{label}: " if label else ""
        self._live = sys.stderr.isatty()

    def __call__(self, done: int, total: int, check: Check, result: Result | None) -> None:
        if result is None:
            if self._live:
                click.echo(f"\r\033[K{self._label}{done + 1}/{total} {check.name}", err=True, nl=False)
            return
        if not self._live:
            click.echo(f"{self._label}{done}/{total} {result.verdict} {check.name}", err=True)
        elif done == total:
            click.echo("\r\033[K", err=True, nl=False)


def _header(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    headers = {}
    for value in values:
        name, colon, rest = value.partition(":")
        if not colon or not name.strip():
            # The value may be a secret, so it is not quoted.
            raise click.BadParameter("a header looks like 'Name: value'")
        headers[name.strip()] = rest.strip()
    return headers


@click.command()
@click.argument("url")
@click.option("--model", help="The model to ask for; by default the first that the server lists.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    callback=_header,
    metavar="'NAME: VALUE'",
    help="A header for every request, such as Authorization. Its value is not written into any report.",
)
@click.option(
    "--deadline",
    type=click.FloatRange(min=0, min_open=True),
    default=Pace().deadline_s,
    show_default=True,
    metavar="SECONDS",
    help="For answers that need no generation; those that do have eight times as long.",
)
@click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write the report as JSON; - is standard output.",
)
@click.option("--html", "html_path", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write the report as one HTML page.")  # fmt: skip
def probe(
    url: str, model: str | None, headers: dict[str, str], deadline: float, json_path: str | None, html_path: Path | None
) -> None:
    """Check the error contract of the server at URL from outside.

    The probe finds out by itself what the server offers, and skips what it does not. Requests that could stall or kill
    a faulty server come last. Exit code: 0 no findings, 1 findings, 2 the probe could not run.
    """
    for path in (json_path, html_path):
        if path and str(path) != "-" and not Path(path).parent.is_dir():
            click.echo(f"omni-errors: {path}: there is no such folder; make it, or choose another file.", err=True)
            sys.exit(EXIT_NOT_RUN)
    pace = Pace(deadline_s=deadline, generation_s=deadline * Pace().generation_s / Pace().deadline_s)
    try:
        report = run(url, model=model, headers=headers, progress=ProgressLine(), pace=pace)
        _write(report, json_path, html_path)
    except ProbeError as error:
        click.echo(f"omni-errors: {error}", err=True)
        sys.exit(EXIT_NOT_RUN)
    except KeyboardInterrupt:
        click.echo("omni-errors: interrupted; no report was written.", err=True)
        sys.exit(EXIT_NOT_RUN)
    text.print_report(report, Console(stderr=json_path == "-"))
    sys.exit(EXIT_FINDINGS if report.failed else 0)


def _write(report: Report, json_path: str | None, html_path: Path | None) -> None:
    document = json.dumps(report.to_json(), indent=1) + "\n"
    if json_path == "-":
        click.echo(document, nl=False)
    for path, content in ((json_path, document), (html_path, html.render(report) if html_path else "")):
        if path and str(path) != "-":
            try:
                Path(path).write_text(content, encoding="utf-8")
            except OSError as error:
                raise ProbeError(f"{path}: the report cannot be written: {error.strerror}.") from None
