# SPDX-License-Identifier: Apache-2.0
"""Folders of the repository that the patch series needs: in a wheel they lie beside this module."""

from pathlib import Path

_PLACES = (Path(__file__).parent / "bundled", Path(__file__).parents[3])


def bundled(name: str) -> Path:
    """The folder of that name, such as ``newsfragments``. Raises FileNotFoundError."""
    for place in _PLACES:
        if (place / name).is_dir():
            return place / name
    raise FileNotFoundError(f"This installation has no folder {name}.")
