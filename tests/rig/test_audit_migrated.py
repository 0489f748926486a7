# SPDX-License-Identifier: Apache-2.0
"""What the audit finds in the migrated tree: nothing of a route, a stage or an output translates or renders by hand.

A site that is still there is one whose decision leaves it as it is, or stands in a table here, with the reason.
"""

import importlib.util
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from conftest import MIGRATED

from vllm_omni_errors.audit import Audit, Site, audit
from vllm_omni_errors.audit.vocabulary import BROAD
from vllm_omni_errors.migrate.rewrites.finalize import LEDGER

AREAS = ("diffusion/*.py", "engine/*", "entrypoints/*", "outputs/*")
"""``diffusion/*.py`` is that folder alone."""

UNCHANGED = frozenset(
    {"configuration", "control-flow", "engine-dead", "engine-generate", "internal", "keep", "validator"}
)
"""Decisions that leave a raise as it is; a raw one among them is an unknown failure of the server, 500."""

A_WORD = "it carries a word of the protocol, and the session's renderer knows each word's status"
CONTROL = "a control call raises it, and its caller catches it by name"
NO_ROUTE = "no route, and no other module, imports this handler (tested below)"

RAISES = {
    ("engine/duplex*", "*", "Duplex*Error"): A_WORD,
    ("entrypoints/duplex_omni.py", "*", "DuplexSessionError"): A_WORD,
    ("engine/duplex/session/lease.py", "DuplexLeaseState.resume", "ValueError"): A_WORD,
    ("entrypoints/duplex/session_attachment.py", "*", "*"): "the renderer of a refused resume knows these types",
    ("diffusion/diffusion_engine.py", "*._check_pause_request", "NotImplementedError"): CONTROL,
    ("entrypoints/openai/video_stream_session.py", "*", "*"): NO_ROUTE,
    ("entrypoints/openai/video_frame_filter.py", "*", "ValueError"): "the model of the session has bounded it before",
    ("entrypoints/openai/protocol/videos.py", "*.validate_quality", "ValueError"): "pydantic makes a field error of it",
    ("entrypoints/openai/serving_rl_rollout.py", "*.step", "HTTPException"): "410 stays",
    ("entrypoints/omni_base.py", "*", "OmniEngineDeadError"): "it is typed: the library's own class",
}
"""File, function and type of raises that say whose fault it is in another way."""

RESPONSES = {
    ("engine/duplex/*", "*", "*"): A_WORD,
    ("entrypoints/duplex/serving.py", "*", "*error_payload"): A_WORD,
    ("entrypoints/openai/video_stream_session.py", "*", "*"): NO_ROUTE,
    ("engine/orchestrator.py", "*._handle_collective_rpc", "dict"): CONTROL,
    ("engine/stage_pool.py", "StagePool.collective_rpc", "dict"): CONTROL,
    ("engine/rpc_result_router.py", "*", "ErrorMessage"): "without a record it reads as a failure of the server",
    ("diffusion/diffusion_engine.py", "*", "DiffusionOutput"): "without a record it reads as a failure of the server",
}
"""File, function and maker of errors that are not made of an exception."""

OF_AN_EXCEPTION = re.compile(
    r"<\(?(\w+Error\(|\w*_error\(|(e|exc|error)>|invalid_fields\(|VideoError\.of\(|.*normalize\()"
)
"""A message that is an exception, or a record made of one: the library renders it."""


@pytest.fixture(scope="module")
def migrated() -> Audit:
    return audit(MIGRATED / "vllm_omni", ledger=LEDGER)


def in_areas(found: Audit, kind: str) -> list[Site]:
    return [
        site
        for site in found.inventory.sites
        if site.kind == kind
        and site.asked
        and any(fnmatchcase(site.path, area) for area in AREAS)
        and not (site.path.startswith("diffusion/") and site.path.count("/") > 1)
    ]


def decision(found: Audit, site: Site) -> str:
    return (found.decision(site) or ("none", ""))[0]


def unexplained(sites: Iterable[Site], table: Iterable[tuple[str, str, str]]) -> list[str]:
    """Sites without a row of the table, and rows without a site."""
    unused = set(table)
    left = []
    for site in sites:
        key = (site.path, site.function, site.exception)
        rows = {row for row in table if all(fnmatchcase(*pair) for pair in zip(key, row, strict=True))}
        unused -= rows
        if not rows:
            left.append(f"{site.path}:{site.line} {site.function}: {site.exception} {site.text}")
    return left + [f"nothing of {row} is left" for row in unused]


def raw_raises(found: Audit) -> list[Site]:
    return [site for site in in_areas(found, "raise") if site.raw and decision(found, site) not in UNCHANGED]


def made_by_hand(found: Audit) -> list[Site]:
    kept = ("configuration", "control-flow", "keep")
    responses = [site for site in in_areas(found, "response") if decision(found, site) not in kept]
    return [site for site in responses if not OF_AN_EXCEPTION.match(site.text)]


def test_no_raw_raise_on_a_request_path_is_left(migrated: Audit) -> None:
    assert unexplained(raw_raises(migrated), RAISES) == []


def test_no_error_response_is_made_by_hand(migrated: Audit) -> None:
    assert unexplained(made_by_hand(migrated), RESPONSES) == []


def rendering_clauses(found: Audit) -> list[Site]:
    return [
        site
        for site in in_areas(found, "except")
        if set(site.exception.split(", ")) & BROAD
        and any(did.startswith(("responds ", "raises HTTPException")) for did in site.does)
        and decision(found, site) != "keep"
    ]


def test_no_broad_handler_renders(migrated: Audit) -> None:
    """What a clause for `Exception` or `ValueError` sends otherwise is an exception: the test above."""
    assert [f"{site.path}:{site.line} {site.does}" for site in rendering_clauses(migrated)] == []


def test_the_handler_that_stays_as_it_is_is_not_in_use() -> None:
    importing = re.compile(r"^\s*(from|import) .*\bvideo_stream_session\b", re.MULTILINE)
    assert [path for path in (MIGRATED / "vllm_omni").rglob("*.py") if importing.search(path.read_text())] == []


def test_the_checks_see_what_they_look_for() -> None:
    spec = importlib.util.find_spec("vllm_omni")
    assert spec is not None
    assert spec.origin is not None
    stock = audit(Path(spec.origin).parent, ledger=LEDGER)
    assert len(raw_raises(stock)) > len(RAISES) + 100
    assert len(made_by_hand(stock)) > len(RESPONSES) + 100
    assert len(rendering_clauses(stock)) > 20
