# SPDX-License-Identifier: Apache-2.0
"""`omni-errors probe URL`: the command line around `probe.run`."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from vllm_omni_errors.probe.check import Check
from vllm_omni_errors.probe.context import Pace
from vllm_omni_errors.probe.contract import Contract
from vllm_omni_errors.probe.record import FORMAT, ProbeError, Report, Result
from vllm_omni_errors.probe.runner import run
from vllm_omni_errors.report import html, junit, text
from vllm_omni_errors.report.console import PipedConsole

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


FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("url", required=False)
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
    "--as",
    "contract",
    type=click.Choice([each.word for each in Contract]),
    help="Hold the server to what the OpenAI API, vLLM or vLLM-Omni promises; by default to what it seems to be.",
)
@click.option(
    "--read-only", is_flag=True, help="Send nothing that creates something there, or may stop a faulty server."
)
@click.option("--destructive", is_flag=True, help="On the rig: also run what ends a part of the server.")
@click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write the report as JSON; - is standard output.",
)
@click.option("--html", "html_path", type=FILE, metavar="FILE", help="Write the report as one HTML page.")
@click.option("--junit", "junit_path", type=FILE, metavar="FILE", help="Write the report as JUnit XML.")
@click.option(
    "--compare",
    nargs=2,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="A.json B.json",
    help="Show two reports side by side instead of probing; exit code 1 if B has a finding that A has not.",
)
def probe(
    url: str | None,
    model: str | None,
    headers: dict[str, str],
    deadline: float,
    contract: str | None,
    read_only: bool,
    destructive: bool,
    json_path: str | None,
    html_path: Path | None,
    junit_path: Path | None,
    compare: tuple[Path, Path] | None,
) -> None:
    """Check the error contract of the server at URL from outside.

    The probe finds out by itself what the server offers, and skips what it does not. Requests that could stall or kill
    a faulty server come last. Exit code: 0 no findings, 1 findings, 2 the probe could not run.

    \b
    Examples:
      omni-errors probe http://127.0.0.1:8000 --html report.html
      omni-errors probe https://host --read-only --junit probe.xml
      omni-errors probe https://host --header 'Authorization: Bearer KEY'
      omni-errors probe --compare before.json after.json --html compared.html
    """
    if (url is None) == (compare is None):
        raise click.UsageError("Give the URL of a server, or two reports with --compare.")
    for path in (json_path, html_path, junit_path):
        if path and str(path) != "-" and not Path(path).parent.is_dir():
            click.echo(f"omni-errors: {path}: there is no such folder; make it, or choose another file.", err=True)
            sys.exit(EXIT_NOT_RUN)
    try:
        if compare:
            sys.exit(_compare(*compare, html_path))
        assert url is not None
        pace = Pace(deadline_s=deadline, generation_s=deadline * Pace().generation_s / Pace().deadline_s)
        report = run(
            url, model=model, headers=headers, progress=ProgressLine(), pace=pace, read_only=read_only,
            destructive=destructive, contract=Contract[contract.upper()] if contract else None,
        )  # fmt: skip
        _write(report, json_path, html_path, junit_path)
    except ProbeError as error:
        click.echo(f"omni-errors: {error}", err=True)
        sys.exit(EXIT_NOT_RUN)
    text.print_report(report, PipedConsole(stderr=json_path == "-"))
    sys.exit(EXIT_FINDINGS if report.failed else 0)


def _write(report: Report, json_path: str | None, html_path: Path | None, junit_path: Path | None) -> None:
    document = json.dumps(report.to_json(), indent=1) + "\n"
    if json_path == "-":
        click.echo(document, nl=False)
    if json_path and json_path != "-":
        _write_file(Path(json_path), document)
    if html_path:
        _write_file(html_path, html.render(report))
    if junit_path:
        _write_file(junit_path, junit.render(report))


def _write_file(path: Path, content: str) -> None:
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise ProbeError(f"{path}: the report cannot be written: {error.strerror}.") from None


def _compare(before: Path, after: Path, html_path: Path | None) -> int:
    """The exit code: 1 if a check fails after that did not fail before."""
    names = (before.stem, after.stem) if before.stem != after.stem else (f"A: {before}", f"B: {after}")
    reports = dict(zip(names, map(_read, (before, after)), strict=True))
    if html_path:
        _write_file(html_path, html.render_comparison(reports))
    text.print_comparison(reports, PipedConsole())
    old, new = ({c["id"] for c in report["checks"] if c["verdict"] == "fail"} for report in reports.values())
    return EXIT_FINDINGS if new - old else 0


def _read(path: Path) -> dict[str, Any]:
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ProbeError(f"{path}: not a report: {error}. Give what --json wrote.") from None
    if not isinstance(report, dict) or report.get("format") != FORMAT:
        raise ProbeError(f"{path}: not a report of this version; write it again with --json.")
    return report
