# SPDX-License-Identifier: Apache-2.0
"""Phase `stages`: the record from the stage that breaks to the API process."""

from collections.abc import Mapping

from vllm_omni_errors.migrate.rewrite import Rewrite

DECIDED: Mapping[str, tuple[str, ...]] = {}
"""Functions whose decided sites change."""

STAGES: tuple[type[Rewrite], ...] = ()
