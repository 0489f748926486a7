# SPDX-License-Identifier: Apache-2.0
"""The real application of vLLM, built once for all tests, plain ones, and what the library logs."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from error_site import Site, build_upstream
from fastapi import FastAPI

from vllm_omni_errors import install


@pytest.fixture(scope="session")
def upstream_site() -> Site:
    """The only one in the process whose ``http_requests_total`` counts: the registry takes each metric once."""
    site = Site(build_upstream())
    install(site.app)
    return site


@pytest.fixture
def plain() -> Callable[..., Site]:
    """Makes a FastAPI application that has nothing of vLLM: no arguments, no server, no engine."""

    def make(app: FastAPI | None = None, **options: Any) -> Site:
        site = Site(app or FastAPI())
        install(site.app, **options)
        return site

    return make


@pytest.fixture
def log() -> Iterator[list[logging.LogRecord]]:
    """What the library logs; its logger hangs below vLLM's, which does not propagate to pytest's."""
    records: list[logging.LogRecord] = []

    class Collecting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    logger, handler = logging.getLogger("vllm_omni_errors"), Collecting()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield records
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)
