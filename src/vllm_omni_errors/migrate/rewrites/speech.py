# SPDX-License-Identifier: Apache-2.0
"""Phase `requests`: speech, voices and audio."""

from collections.abc import Mapping

from vllm_omni_errors.migrate.rewrite import Rewrite

DECIDED: Mapping[str, tuple[str, ...]] = {}
"""Functions whose decided sites change."""

SPEECH: tuple[type[Rewrite], ...] = ()
