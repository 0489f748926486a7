# SPDX-License-Identifier: Apache-2.0
"""Phase `requests`: videos and their jobs."""

from collections.abc import Mapping

from vllm_omni_errors.migrate.rewrite import Rewrite

DECIDED: Mapping[str, tuple[str, ...]] = {}
"""Functions whose decided sites change."""

VIDEOS: tuple[type[Rewrite], ...] = ()
