# SPDX-License-Identifier: Apache-2.0
"""Phase `transports`: streams that have sent their headers."""

from collections.abc import Mapping

from vllm_omni_errors.migrate.rewrite import Rewrite

REVIEWED: tuple[str, ...] = ()
"""Routes whose own errors are all typed: a raw exception on them is 500."""

DECIDED: Mapping[str, tuple[str, ...]] = {}
"""Functions whose decided sites change."""

STREAMS: tuple[type[Rewrite], ...] = ()
