# SPDX-License-Identifier: Apache-2.0
"""Phase `requests`: speech, voices and audio."""

from collections.abc import Mapping

from vllm_omni_errors.migrate.rewrite import Rewrite

REVIEWED: tuple[str, ...] = ()
"""Routes whose own errors are all typed: a raw exception on them is 500."""

DECIDED: Mapping[str, tuple[str, ...]] = {}
"""Functions whose decided sites change."""

SPEECH: tuple[type[Rewrite], ...] = ()
