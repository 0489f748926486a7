#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that some tests need and pip cannot install: Debian's, if they are missing.

    python3 scripts/packages.py

Standard library only. Exit code 0, or 1 with one sentence on stderr.
"""

import os
import shutil
import subprocess
import sys

PACKAGES = {
    "chromium": (("chromium", "chromium-browser", "google-chrome"), "the tests of the pages"),
    "prometheus": (("promtool",), "the tests of the rules and alerts"),
}
"""Debian's package, the programs of which one is enough, and what needs it."""

QUIET = ("--quiet", "--quiet")


def missing() -> dict[str, str]:
    """Packages to install, and what each is for."""
    return {name: purpose for name, (programs, purpose) in PACKAGES.items() if not any(map(shutil.which, programs))}


def main() -> int:
    wanted = missing()
    if not wanted:
        return 0
    names = " ".join(wanted)
    next_step = f"install them, for example with `sudo apt-get install {names}`, and run the same command again."
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(f"packages: {names} are missing, for {' and '.join(wanted.values())}; {next_step}", file=sys.stderr)
        return 1
    print(f"Installing Debian's {names}, for {' and '.join(wanted.values())} …", file=sys.stderr, flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (("update",), ("install", "--yes", "--no-install-recommends", *wanted)):
        command = ("apt-get", *QUIET, *arguments)
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
            print(f"packages: apt-get {arguments[0]} failed ({said}); {next_step}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
