# SPDX-License-Identifier: Apache-2.0
"""Every rewrite, in the order in which they are applied."""

from vllm_omni_errors.migrate.rewrite import Rewrite
from vllm_omni_errors.migrate.rewrites.bridge import BRIDGE
from vllm_omni_errors.migrate.rewrites.requests import REQUESTS

ALL: tuple[type[Rewrite], ...] = (*BRIDGE, *REQUESTS)
