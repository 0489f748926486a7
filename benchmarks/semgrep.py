# SPDX-License-Identifier: Apache-2.0
"""Semgrep for comparison, in an environment of its own in ``build/``: its pins are not those of the project."""

import subprocess
import sys
import venv
from pathlib import Path

VERSION = "1.185.0"
PLACE = Path(__file__).parents[1] / "build" / f"semgrep-{VERSION}"
INSTALL_LIMIT_S = 600
RULE = """\
rules:
  - id: raw-value-error
    languages: [python]
    severity: WARNING
    message: A raw ValueError.
    pattern: raise ValueError(...)
"""


def program() -> Path | None:
    """Semgrep, installed if it is not there; None, and a sentence on stderr, if that fails."""
    found, complete = PLACE / "bin" / "semgrep", PLACE / ".complete"
    if complete.is_file():
        return found
    pip = [str(PLACE / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    try:
        venv.create(PLACE, clear=True, with_pip=True)
        subprocess.run([*pip, f"semgrep=={VERSION}"], check=True, capture_output=True, timeout=INSTALL_LIMIT_S)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        print(f"semgrep is not measured: pip could not install semgrep=={VERSION} into {PLACE}.", file=sys.stderr)
        return None
    complete.touch()
    return found


def command(program: Path, folder: Path) -> list[str]:
    """Every file below the working directory against the one rule; asks no network, and writes to `folder` only."""
    rule = folder / "rule.yaml"
    rule.write_text(RULE)
    return [
        "env", f"SEMGREP_SETTINGS_FILE={folder / 'settings.yml'}", f"SEMGREP_LOG_FILE={folder / 'semgrep.log'}",
        str(program), "scan", "--config", str(rule), "--metrics=off", "--disable-version-check", "--no-git-ignore",
        "--timeout", "0", "--max-target-bytes", "0", "--json", "--quiet", ".",
    ]  # fmt: skip
