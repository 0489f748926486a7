# SPDX-License-Identifier: Apache-2.0
"""Stock against migrated: the probe on the real server of each, one after the other, and the two side by side.

Writes the page that `--out` names, and beside it `demo-stock.json` and `demo-migrated.json`. Exit code: 0 when the
migrated server kept every rule and the stock one broke enough of them to show something; 1 when not; 2 when it could
not be done.
"""

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from vllm_omni_errors.probe import ProbeError, Report, run
from vllm_omni_errors.probe.command import ProgressLine
from vllm_omni_errors.report import html, text
from vllm_omni_errors.report.model import ids_alone
from vllm_omni_rig.server import RigError, start

STOCK_FINDINGS_MINIMUM = 12
STAGES = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("build/demo.html"), help="the page to write")
    parser.add_argument("--tree", type=Path, default=Path("build/migrated"), help="the migrated vLLM-Omni")
    options = parser.parse_args(arguments)
    # A terminated demonstration stops its server as an interrupted one does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        reports = {
            "stock": probe_server("stock", None, options.out.parent),
            "migrated": probe_server("migrated", options.tree, options.out.parent),
        }
        options.out.write_text(html.render_comparison(reports), encoding="utf-8")
    except (RigError, ProbeError, OSError) as error:
        say(f"The demonstration could not be done: {error}")
        return 2
    except KeyboardInterrupt:
        say("Interrupted; the server is stopped.")
        return INTERRUPTED
    text.print_comparison(reports, Console())
    print(f"{options.out} shows every request and answer. {time.monotonic() - began:.0f} s.")
    return verdict(reports["stock"], reports["migrated"])


def probe_server(name: str, tree: Path | None, directory: Path) -> Report:
    """Start the server (of the installed vLLM-Omni, or of `tree`), probe it, stop it, and keep the report as JSON."""
    say(f"{name}: starting the server with {STAGES} stages, about a minute")
    log = directory / f"demo-{name}.log"
    log.unlink(missing_ok=True)
    with start(STAGES, tree=tree, log=log, progress=lambda words: say(f"{name}: {words}")) as server:
        report = run(server.url, progress=ProgressLine(name), destructive=True)
    path = directory / f"demo-{name}.json"
    path.write_text(json.dumps(report.to_json(), indent=1) + "\n", encoding="utf-8")
    return report


def verdict(stock: Report, migrated: Report) -> int:
    """0 when the demonstration shows what it is for. Checks that only lack the ids do not count for it."""
    broken = stock.failed - ids_alone(stock.to_json())
    if migrated.failed:
        names = ", ".join(check.id for check in migrated.checks if check.verdict == "fail")
        say(f"The migrated server breaks {migrated.failed}: {names}.")
        return 1
    if broken < STOCK_FINDINGS_MINIMUM:
        say(f"The stock server breaks {broken}, not {STOCK_FINDINGS_MINIMUM} or more: the demonstration shows nothing.")
        return 1
    return 0


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
