# SPDX-License-Identifier: Apache-2.0
"""Write what is made from the code and from the changelog's fragments: see `DOCUMENTS`.

python scripts/documents.py
"""

import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from vllm_omni_errors import explain
from vllm_omni_errors.probe import catalogue as probe_checks

ROOT = Path(__file__).resolve().parent.parent
FRAGMENTS = ROOT / "newsfragments"
ROUTE = re.compile(r"`(?:[A-Z]+ )?(/(?:v1|tokenize|detokenize|invocations|generative|start|stop|pooling)[^`\s…]*)…?`")

STATUS_CHANGES = """\
# Changed statuses

Made by `make docs` from `newsfragments/*.status-change.md`. What a migrated server answers differently from stock
0.30.0, and what a client does then; [Migrating](migrating.md) says how to prepare for it.

## By route

A change that names no route of its own is of several: see *other changes*.

| route | changes |
|---|---|
{routes}

## The changes

{changes}
"""


def status_changes() -> str:
    """The page of every changed status, with an index by route."""
    texts = {path.name.split(".")[0].strip("+"): path for path in sorted(FRAGMENTS.rglob("*.status-change.md"))}
    by_route: dict[str, list[str]] = defaultdict(list)
    changes = []
    for name, path in texts.items():
        text = path.read_text().strip()
        link = f"[{name.replace('-', ' ')}](#{name})"
        for route in sorted(set(ROUTE.findall(text))) or ["other changes"]:
            by_route[route].append(link)
        changes.append(f"### {name.replace('-', ' ').capitalize()} {{ #{name} }}\n\n{text}\n")
    others = by_route.pop("other changes", [])
    rows = [f"| `{route}` | {', '.join(links)} |" for route, links in sorted(by_route.items())]
    if others:
        rows.append(f"| *other changes* | {', '.join(others)} |")
    return STATUS_CHANGES.format(routes="\n".join(rows), changes="\n".join(changes).rstrip())


def changelog() -> str:
    """The changelog of the version that is in pyproject.toml."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    command = (sys.executable, "-m", "towncrier", "build", "--draft", "--version", version)
    draft = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return "# Changelog\n\n" + draft.strip() + "\n"


DOCUMENTS: dict[str, Callable[[], str]] = {
    "CHANGELOG.md": changelog,
    "docs/checks.md": probe_checks.page,
    "docs/errors.md": explain.markdown,
    "docs/status-changes.md": status_changes,
}

if __name__ == "__main__":
    for name, make in DOCUMENTS.items():
        (ROOT / name).write_text(make())
