# SPDX-License-Identifier: Apache-2.0
"""A site that is typed now is still caught where its raw type was: on the real vLLM-Omni 0.30.0, without a server."""

import importlib.util
from pathlib import Path

import pytest

from vllm_omni_errors.audit import Audit, audit
from vllm_omni_errors.migrate.rewrites import ALL
from vllm_omni_errors.migrate.rewrites.decided import DecidedSites
from vllm_omni_errors.migrate.rewrites.shapes import InTry

EVERYTHING = {"Exception", "BaseException"}

PASSES = {
    (
        "diffusion/models/lingbot_world/camera.py",
        "_load_bounded_npy",
    ): "the site's own text says more than the clause's",
    (
        "diffusion/models/wan2_2/pipeline_wan2_2_s2v.py",
        "Wan22S2VPipeline.forward",
    ): "the clause cleans up and re-raises",
}
"""Clauses that a typed site may pass, and why."""


@pytest.fixture(scope="module")
def stock() -> Audit:
    spec = importlib.util.find_spec("vllm_omni")
    assert spec is not None
    assert spec.origin is not None
    return audit(Path(spec.origin).parent)


def test_no_clause_of_a_raw_type_loses_what_is_typed_now(stock: Audit) -> None:
    """A05: a clause for `ValueError` does not catch a `VLLMValidationError`; it is changed, or it may be passed.

    Routes whose clauses translate are the business of their own tests, which see the status.
    """
    typed = {row.fingerprint for each in ALL if issubclass(each, DecidedSites) for row in each.rows}
    changed = {(each.module, each.function) for each in ALL if issubclass(each, InTry)}
    missed = [
        f"{site.path}:{site.line} {site.function} catches {site.exception}"
        for site in stock.inventory.sites
        if site.kind == "except"
        and typed & set(site.catches)
        and not EVERYTHING & set(site.exception.split(", "))
        and not site.path.startswith("entrypoints/")
        and (site.path, site.function) not in changed | PASSES.keys()
    ]
    assert missed == []


def test_the_check_sees_such_a_clause(stock: Audit) -> None:
    caught = [site for site in stock.inventory.sites if site.kind == "except" and site.catches]
    assert any(site.function == "Cosmos3OmniDiffusersPipeline._build_robolab_policy_inputs" for site in caught)
