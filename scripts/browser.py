#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The headless browser that the tests of the pages need: Debian's Chromium, installed if it is missing.

    python3 scripts/browser.py

Standard library only. Exit code 0, or 1 with one sentence on stderr.
"""

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome")
COMMANDS = (
    ("apt-get", "update", "--quiet", "--quiet"),
    ("apt-get", "install", "--yes", "--quiet", "--quiet", "--no-install-recommends", "chromium"),
)
NEXT_STEP = "install chromium, for example with `sudo apt-get install chromium`, and run the same command again."


def main() -> int:
    if any(map(shutil.which, NAMES)):
        return 0
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(f"browser: the tests of the pages need a Chromium; {NEXT_STEP}", file=sys.stderr)
        return 1
    print("Installing Debian's chromium, for the tests of the pages …", file=sys.stderr, flush=True)
    for command in COMMANDS:
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        )
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
            print(f"browser: {' '.join(command[:2])} failed ({said}); {NEXT_STEP}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
