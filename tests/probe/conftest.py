# SPDX-License-Identifier: Apache-2.0
"""A probe that does not wait long."""

from collections.abc import Callable
from functools import partial

import pytest
from faithful_server import QUICK

from vllm_omni_errors.probe import Report, run


@pytest.fixture
def probe() -> Callable[..., Report]:
    """`run`, with short deadlines."""
    return partial(run, pace=QUICK)
