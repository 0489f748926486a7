# SPDX-License-Identifier: Apache-2.0
"""The probe finds out what the server offers; what is absent is skipped with the reason."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from faithful_server import QUICK, ROUTES, Faithful, Problem, serving
from starlette.types import Scope

from vllm_omni_errors.probe import CHECKS, ProbeError, Report
from vllm_omni_errors.probe.contract import Contract
from vllm_omni_errors.probe.media import refusing_url

Probe = Callable[..., Report]

IMAGE_FAULTS = [check for check in CHECKS if check.id in ("fault.bad-output", "fault.guardrail", "fault.out-of-memory")]


def whys(report: Report) -> dict[str, str]:
    return {check.id: check.why for check in report.checks if check.verdict == "skip"}


class TextOnly(Faithful):
    """A plain text server under another name, as far as its OpenAPI document goes."""

    model = "org/model"

    async def answer(self, scope: Scope, path: str, body: bytes) -> Any:
        if "images" in path:
            raise Problem(404, "Not Found", "Not Found")
        if path == "/openapi.json":
            return {"paths": {p: {m.lower(): {}} for p, m in ROUTES.items() if "images" not in p}}
        return await super().answer(scope, path, body)


def test_absent_routes_are_skipped_with_the_reason(probe: Probe) -> None:
    with serving(TextOnly()) as url:
        report = probe(url)
    assert report.failed == 0
    assert whys(report)["images.size"] == "the server has no POST /v1/images/generations"
    assert whys(report)["edits.url-404"] == "the server has no POST /v1/images/edits"
    assert "chat.temperature" not in whys(report)


class WithoutDocument(TextOnly):
    async def answer(self, scope: Scope, path: str, body: bytes) -> Any:
        if path == "/openapi.json":
            raise Problem(404, "Not Found", "Not Found")
        return await super().answer(scope, path, body)

    async def respond(self, scope: Scope, path: str, method: str, body: bytes) -> Any:
        return await super().respond(scope, "/absent" if "images" in path else path, method, body)


def test_without_an_openapi_document_the_routes_are_asked_for(probe: Probe) -> None:
    with serving(WithoutDocument()) as url:
        report = probe(url, checks=[check for check in CHECKS if check.id in ("images.size", "chat.temperature")])
    assert report.failed == 0
    assert whys(report)["images.size"] == "the server has no POST /v1/images/generations"
    assert "chat.temperature" not in whys(report)


class NotServed(Faithful):
    """Has the route for completions, but no model for it."""

    def generate(self, path: str, body: dict[str, Any]) -> Any:
        if path == "/v1/completions":
            raise Problem(501, "NotImplementedError", "The model does not support completions.")
        return super().generate(path, body)


def test_a_route_that_is_not_served_is_skipped_with_what_the_server_said(probe: Probe) -> None:
    with serving(NotServed()) as url:
        report = probe(url, checks=[check for check in CHECKS if "completions" in check.id or check.id == "ok.chat"])
    assert report.failed == 0
    words = "not served here: 501 'The model does not support completions.'"
    assert whys(report) == dict.fromkeys(
        (
            "ok.completions",
            "completions.unknown-model",
            "stream.completions",
            "stream.completions-temperature",
            "completions.stalling-name",
        ),
        words,
    )


class OtherName(Faithful):
    model = "org/model"


class NoFaults(Faithful):
    def fault(self, word: str) -> Any:
        return self.images({})


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (OtherName, "faults on demand exist on the rig only"),
        (NoFaults, "the model is called 'tiny', but fault words in a prompt have no effect"),
    ],
)
def test_the_rigs_faults_are_used_on_the_rig_alone(probe: Probe, kind: type[Faithful], reason: str) -> None:
    with serving(kind()) as url:
        report = probe(url, checks=IMAGE_FAULTS)
    assert set(whys(report).values()) == {reason}
    assert report.skipped == len(report.checks) > 0


class OneFaultOnly(Faithful):
    def fault(self, word: str) -> Any:
        return super().fault(word) if word == "FAULT:guard" else self.images({})


def test_a_fault_without_effect_is_no_finding(probe: Probe) -> None:
    with serving(OneFaultOnly()) as url:
        report = probe(url, checks=IMAGE_FAULTS)
    assert report.failed == 0
    assert whys(report)["fault.bad-output"] == "the fault word had no effect on this server"


class Unlimited(Faithful):
    maximum_tokens = None


def test_a_limit_that_is_not_published_cannot_be_exceeded(probe: Probe) -> None:
    with serving(Unlimited()) as url:
        report = probe(url, checks=[check for check in CHECKS if "long-prompt" in check.id])
    assert set(whys(report).values()) == {"/v1/models does not say how long a prompt may be"}


def test_read_only_leaves_out_what_creates_or_may_stop_a_server(probe: Probe) -> None:
    risky = [check for check in CHECKS if check.danger or check.creates]
    creating = [replace(check, creates=True) for check in CHECKS if check.id == "ok.images"]
    server = Faithful()
    with serving(server) as url:
        report = probe(url, checks=[*creating, *risky], read_only=True)
    assert {check.verdict for check in report.checks} == {"skip"}
    assert whys(report)["ok.images"] == "--read-only: it would create something on the server"
    assert whys(report)["images.seed"] == "--read-only: it may stop a faulty server"
    assert server.seen.count("/v1/chat/completions") == 0


def test_a_server_is_held_to_what_is_asked_for(probe: Probe) -> None:
    class Flat(Faithful):
        def error(self, problem: Problem, path: str, request_id: str, body: bytes) -> Any:
            error = super().error(problem, path, request_id, body)
            del error["error"]["request_id"]
            return error

    checks = [check for check in CHECKS if check.id == "images.size"]
    with serving(Flat()) as url:
        assert probe(url, checks=checks).failed == 1
        lesser = probe(url, checks=checks, contract=Contract.VLLM)
    assert (lesser.contract, lesser.failed) == ("vllm", 0)
    assert [finding.rule for finding in lesser.checks[0].beyond] == ["ids"]


def test_requests_are_spaced(probe: Probe) -> None:
    """A bucket of so many; what is over it waits for a second's share."""
    checks = [check for check in CHECKS if check.id in ("ok.models", "route.unknown", "route.method")]
    with serving(Faithful()) as url:
        began = time.monotonic()
        probe(url, checks=checks, pace=replace(QUICK, requests_per_second=8))
        took = time.monotonic() - began
    # More than 16 requests, of which 8 are sent at once.
    assert took > 1.0


class NoModels(Faithful):
    async def answer(self, scope: Scope, path: str, body: bytes) -> Any:
        if path == "/v1/models":
            raise Problem(404, "Not Found", "Not Found")
        return await super().answer(scope, path, body)


def test_a_server_without_a_list_of_models_needs_a_name(probe: Probe) -> None:
    with serving(NoModels()) as url:
        with pytest.raises(ProbeError, match="--model"):
            probe(url, checks=CHECKS[:1])
        assert probe(url, model="tiny", checks=CHECKS[:1]).model == "tiny"


def test_a_model_that_is_not_listed_cannot_be_probed(probe: Probe) -> None:
    with serving(Faithful()) as url, pytest.raises(ProbeError, match="no model 'other'; it lists tiny"):
        probe(url, model="other")


def test_nobody_there_cannot_be_probed(probe: Probe) -> None:
    with pytest.raises(ProbeError, match="Is the server running there"):
        probe(refusing_url())


def test_the_report_says_what_the_server_says_of_itself(probe: Probe) -> None:
    with serving(Faithful()) as url:
        report = probe(url, checks=CHECKS[:1])
    assert (report.url, report.model, report.server) == (url, "tiny", {"version": "0.0.1"})
