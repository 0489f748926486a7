# SPDX-License-Identifier: Apache-2.0
"""Where the reviewed ledgers are: beside the package when it is installed, at the root of a checkout otherwise."""

from pathlib import Path

_PLACES = (Path(__file__).parent / "ledgers", Path(__file__).parents[2] / "ledgers")


def folder(name: str) -> Path:
    """The ledger of that name, such as ``vllm-omni-0.30.0``. Raises FileNotFoundError."""
    for place in _PLACES:
        if (place / name).is_dir():
            return place / name
    raise FileNotFoundError(f"This installation has no ledger {name}.")
