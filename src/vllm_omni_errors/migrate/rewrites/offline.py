# SPDX-License-Identifier: Apache-2.0
"""Phase `stages`: `Omni` and `AsyncOmni`, called from Python."""

from collections.abc import Mapping

from vllm_omni_errors.migrate.rewrite import Rewrite

DECIDED: Mapping[str, tuple[str, ...]] = {}
"""Functions whose decided sites change."""

OFFLINE: tuple[type[Rewrite], ...] = ()
