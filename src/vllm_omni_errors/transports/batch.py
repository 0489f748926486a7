# SPDX-License-Identifier: Apache-2.0
"""Batches: a failed item is an error object in a successful answer, a failed batch is an HTTP error (contract, 4)."""

from collections.abc import Sequence
from typing import Any

from .envelope import error_object
from .request import handled


def item_error(exc: BaseException) -> dict[str, Any]:
    """The canonical error object of an item that failed; the failure is logged and counted."""
    return error_object(handled(exc, "item"))


def raise_if_all_failed(results: Sequence[object]) -> None:
    """Raise the first item's exception if every item has one.

    ``results`` are those of ``asyncio.gather(…, return_exceptions=True)``.
    """
    failures = [result for result in results if isinstance(result, BaseException)]
    if failures and len(failures) == len(results):
        raise failures[0]
