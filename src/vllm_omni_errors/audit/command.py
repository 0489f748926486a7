# SPDX-License-Identifier: Apache-2.0
"""`omni-errors audit TREE`: the command line around `audit`."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import click

from vllm_omni_errors.audit import Audit, AuditError, document, hold, read, table
from vllm_omni_errors.audit import ledger as ledgers
from vllm_omni_errors.audit.cache import Cache, default_path
from vllm_omni_errors.audit.tree import PACKAGES, Tree, open_tree
from vllm_omni_errors.report.console import PipedConsole

EXIT_FINDINGS = 1
EXIT_NOT_RUN = 2
PIPED_WIDTH_COLUMNS = 200

_FILE = click.Path(dir_okay=False, path_type=Path, allow_dash=True)


@click.command()
@click.argument("tree")
@click.option("--ledger", "ledger_path", type=click.Path(path_type=Path), metavar="DIR",
              help="The reviewed decisions: a folder such as ledgers/vllm-omni-0.30.0.")  # fmt: skip
@click.option("--seams", "seams_path", type=click.Path(path_type=Path), metavar="DIR",
              help="The reviewed calls into vLLM (default: what --ledger names as seams).")  # fmt: skip
@click.option("--check", is_flag=True, help="The gate: exit 1 on what is open or expired, 2 on a ledger that is stale.")
@click.option("--json", "json_path", type=_FILE, metavar="FILE", help="Write everything as JSON; - is standard output.")
@click.option("--sarif", "sarif_path", type=_FILE, metavar="FILE", help="Write the findings as SARIF 2.1.0.")
@click.option("--html", "html_path", type=_FILE, metavar="FILE", help="Write the audit as one HTML page.")
@click.option("--only", multiple=True, metavar="GLOB", help="List only sites whose path matches; * matches / too.")
@click.option("--open", "open_only", is_flag=True, help="List only sites that are still to be decided.")
@click.option("--context", type=click.IntRange(0, 200), default=0, metavar="LINES",
              help="Add so many lines of source around each site to the JSON.")  # fmt: skip
@click.option("--trend", multiple=True, metavar="TREE",
              help="Another version to compare with, oldest first; may be given again.")  # fmt: skip
@click.option("--decide", "decide_path", type=_FILE, metavar="FILE",
              help="Write decisions into the ledger: lines of JSON (see ledgers/README.md); - is stdin.")  # fmt: skip
@click.option("--reanchor", is_flag=True, help="Write rows whose sites only moved to their new places.")
@click.option("--cache", "cache_path", type=click.Path(path_type=Path), metavar="FILE",
              help="Where results are kept (default: in the user's cache folder).")  # fmt: skip
@click.option("--no-cache", is_flag=True, help="Read everything anew, and keep nothing.")
@click.option("--today", type=click.DateTime(["%Y-%m-%d"]), hidden=True)
@read.without_collector()
def audit(
    tree: str, ledger_path: Path | None, seams_path: Path | None, check: bool, json_path: Path | None,
    sarif_path: Path | None, html_path: Path | None, only: tuple[str, ...], open_only: bool, context: int,
    trend: tuple[str, ...], decide_path: Path | None, reanchor: bool, cache_path: Path | None, no_cache: bool,
    today: Any,
) -> None:  # fmt: skip
    """List every raise, except clause and error response of TREE, and hold them against a reviewed ledger.

    TREE is a checkout, a package's folder, a wheel, or a requirement that pip downloads; nothing of it is imported or
    run.

    \b
    Examples:
      omni-errors audit ~/src/vllm-omni --html audit.html
      omni-errors audit vllm-omni==0.30.0 --ledger ledgers/vllm-omni-0.30.0 --check
      omni-errors audit TREE --seams ledgers/upstream-0.30.0 --check
      omni-errors audit TREE --ledger LEDGER --only 'entrypoints/openai/images/*' --open --context 12 --json -
      echo '{"fingerprint": "…", "decision": "validation", "parameter": "size", "reason": "…"}' |
        omni-errors audit TREE --ledger LEDGER --decide -
    """
    needs = [("--decide", decide_path is not None), ("--reanchor", reanchor)]
    for option, given in needs:
        if given and ledger_path is None:
            raise click.UsageError(f"{option} needs --ledger.")
    if check and ledger_path is None and seams_path is None:
        raise click.UsageError("--check needs --ledger or --seams.")
    cache = Cache(None if no_cache else cache_path or default_path())
    try:
        found = _open(tree)
        folder = ledger_path.parent if ledger_path is not None and ledger_path.name == ledgers.MANIFEST else ledger_path
        if folder is not None or seams_path is not None:
            from vllm_omni_errors.audit import review, seams  # an inventory alone needs neither
        if folder is not None:
            ledgers.load(folder)
            seams_path = seams_path or seams.named_by(folder)
        reviewed_seams = seams.load(seams_path) if seams_path is not None else None
        inventory = read.inventory_of(found, cache)
        day = today.date() if today is not None else date.today()
        if folder is not None and decide_path is not None:
            text = sys.stdin.read() if str(decide_path) == "-" else decide_path.read_text(encoding="utf-8")
            rows = review.decide(folder, inventory, review.read(text), day)
            click.echo(f"{len(rows)} rows written.", err=True)
        if folder is not None and reanchor:
            click.echo(f"{len(review.reanchor(folder, inventory))} rows moved.", err=True)
        result = hold(found, inventory, ledgers.load(folder) if folder is not None else None, day)
        if reviewed_seams is not None:
            result = replace(result, findings=[*result.findings, *seams.findings(reviewed_seams, found)])
        points = [document.trend_point(read.inventory_of(_open(other), cache)) for other in trend]
        points.append(document.trend_point(inventory))
        sites = document.selected(result, only, open_only=open_only) if only or open_only else None
        _write(result, sites, context, points, json_path, sarif_path, html_path)
    except (AuditError, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.filename is None:  # standard output's, which the command line tells
            raise
        click.echo(f"omni-errors: {error}", err=True)
        sys.exit(EXIT_NOT_RUN)
    finally:
        cache.close()
    if not (decide_path is not None and json_path is None and not check):
        piped = any(str(path) == "-" for path in (json_path, sarif_path, html_path))
        console = PipedConsole(stderr=piped)
        if not console.is_terminal:
            console.width = max(console.width, PIPED_WIDTH_COLUMNS)
        table.print_audit(result, console, trend=points, gate=check)
    if check:
        _leave(result)


def _open(given: str) -> Tree:
    """A tree that can be read until the command ends."""
    found: Tree = click.get_current_context().with_resource(open_tree(given))
    if found.package not in PACKAGES:
        click.echo(
            f"omni-errors: {given} holds no vllm_omni package: all of its Python files are audited, and streams, jobs"
            " and stages are recognised only where they lie as vLLM-Omni's do.",
            err=True,
        )
    return found


def _leave(result: Audit) -> None:
    codes = {finding.code for finding in result.failures}
    if not codes:
        return
    sys.exit(EXIT_NOT_RUN if codes & {"stale", "needless"} else EXIT_FINDINGS)


def _write(
    result: Audit, sites: Sequence[Any] | None, context: int, points: Sequence[dict[str, Any]], json_path: Path | None,
    sarif_path: Path | None, html_path: Path | None,
) -> None:  # fmt: skip
    if json_path is not None:
        made = document.document(result, sites=sites, context_lines=context, trend=points)
        _put(json_path, json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    if sarif_path is not None:
        from vllm_omni_errors.report import sarif

        _put(sarif_path, json.dumps(sarif.render(result), indent=1, ensure_ascii=False) + "\n")
    if html_path is not None:
        from vllm_omni_errors.audit import page

        _put(html_path, page.render(result, points))


def _put(path: Path, text: str) -> None:
    if str(path) == "-":
        click.echo(text, nl=False)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise AuditError(f"{path}: cannot write: {error.strerror}.") from None
