# SPDX-License-Identifier: Apache-2.0
"""A requirement such as ``vllm-omni==0.30.0`` → the wheel that pip downloads for it."""

import subprocess
import sys
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

DISTRIBUTION = "vllm-omni"
DOWNLOAD_DEADLINE_S = 900
EXAMPLE = "Give a checkout, a wheel file, or a requirement such as vllm-omni==0.30.0."


class DownloadError(Exception):
    """There is no wheel for what was given.

    Args:
        subject: what was given.
        reason: what is wrong, without a full stop.
        next_step: what the user can do, one or more sentences.
    """

    def __init__(self, subject: str, reason: str, next_step: str) -> None:
        super().__init__(f"{subject}: {reason}. {next_step}")
        self.subject = subject
        self.reason = reason
        self.next_step = next_step


def download(specification: str, directory: Path) -> Path:
    """Download one wheel of vLLM-Omni with pip, without dependencies; pip's own settings (index, proxy, cache) apply.

    Raises DownloadError if it is no requirement of vLLM-Omni, else with pip's own words.
    """
    requirement = _requirement(specification)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar=off", "--dest", str(directory), "--", str(requirement)]
    by_hand = "Download the wheel yourself and give its path."
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DOWNLOAD_DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise DownloadError(
            str(requirement), f"pip did not finish the download in {DOWNLOAD_DEADLINE_S} seconds", by_hand
        ) from None
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        words = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")] or lines[-1:]
        raise DownloadError(
            str(requirement),
            f"pip could not download it: {' '.join(words).rstrip('.') or f'exit code {done.returncode}'}",
            f"Check the version, the network and `pip config list`, and run it again. {by_hand}",
        )
    found = sorted(directory.glob("*.whl"))
    if len(found) != 1:
        raise DownloadError(str(requirement), f"pip downloaded {len(found)} wheels instead of one", by_hand)
    return found[0]


def _requirement(specification: str) -> Requirement:
    looks_like_path = specification.endswith(".whl") or (
        any(separator in specification for separator in ("/", "\\")) and "@" not in specification
    )
    try:
        requirement = None if looks_like_path else Requirement(specification)
    except InvalidRequirement:
        requirement = None
    if requirement is None:
        raise DownloadError(specification, "there is no such file, and it is not a requirement", EXAMPLE)
    if canonicalize_name(requirement.name) != DISTRIBUTION:
        raise DownloadError(
            specification,
            f"there is no such file, and as a requirement it names {requirement.name}, not vLLM-Omni",
            EXAMPLE,
        )
    return requirement
