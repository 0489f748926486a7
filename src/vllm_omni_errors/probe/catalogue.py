# SPDX-License-Identifier: Apache-2.0
"""The catalogue of checks as a page: ``python -m vllm_omni_errors.probe.catalogue > docs/checks.md``."""

from vllm_omni_errors.probe.check import Danger
from vllm_omni_errors.probe.checks import CHECKS
from vllm_omni_errors.probe.rules import RULES
from vllm_omni_errors.report.model import TRANSPORTS

HEAD = """\
# Checks of the probe

Made from the code by `make docs`. Each check sends its requests if the server has what they need. ⚠ marks what may
stall or stop a faulty server and comes last, ✎ what creates something there; `--read-only` leaves both out. ☠ ends a
part of the server, on the rig alone, and runs with `--destructive`.
"""
MARKS = {Danger.HARMLESS: "", Danger.MAY_STALL: " ⚠", Danger.MAY_KILL: " ⚠", Danger.KILLS: " ☠"}


def page() -> str:
    """The whole page, as Markdown."""
    parts = [HEAD]
    for transport, title in TRANSPORTS.items():
        parts += [f"## {title}\n", "| check | what is sent | rule | source |", "|---|---|---|---|"]
        for check in CHECKS:
            if check.transport == transport:
                marks = MARKS[check.danger] + (" ✎" if check.creates else "")
                parts.append(f"| `{check.id}`{marks} | {check.name} | {check.rule} | {check.source} |")
        parts.append("")
    parts += ["## Rules of every error answer\n", "| rule | least contract that has it |", "|---|---|"]
    parts += [f"| {name} | {contract.word} |" for name, contract in dict.fromkeys((n, c) for n, c, _ in RULES)]
    return "\n".join(parts) + "\n"
