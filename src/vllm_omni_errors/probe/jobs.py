# SPDX-License-Identifier: Apache-2.0
"""What is right in a failed job, and in a list of jobs (contract, section 6)."""

from dataclasses import dataclass
from typing import Any

from vllm_omni_errors.probe.answer import Answer
from vllm_omni_errors.probe.canaries import Canaries
from vllm_omni_errors.probe.contract import Contract
from vllm_omni_errors.probe.record import Finding
from vllm_omni_errors.probe.rules import Expect, Judgement, broken_inside, broken_rules, shown

_OK = Expect(frozenset({200}))
OMNI = Contract.OMNI.word
STATUS_RULES = ("answered", "status")


@dataclass(frozen=True, slots=True)
class Failed:
    """HTTP 200, status `failed`, the error inside with the job's id; just `stored`, if an earlier answer had that."""

    error: Expect
    identity: str
    stored: Any = None
    success: bool = False

    def describe(self) -> str:
        return f"200, a failed job, and inside: {self.error.describe()}"

    def judge(self, answer: Answer, canaries: Canaries, contract: Contract) -> Judgement:
        body = answer.json()
        if answer.status != 200:
            # A whole job as an error answer has the prompt in it, by right.
            findings = [finding for finding in broken_rules(answer, _OK, canaries) if finding.rule in STATUS_RULES]
            if isinstance(body, dict) and body.get("status") == "failed":
                findings += broken_inside(answer, body.get("error"), self.error, canaries, body)
            return Judgement(tuple(dict.fromkeys(findings)))
        if not isinstance(body, dict) or body.get("status") != "failed":
            if isinstance(body, dict) and body.get("status") == "completed" and self.error.accepted:
                return Judgement(skip=self.error.accepted)
            return Judgement((Finding("job", f"a failed job was expected: {shown(body)}", OMNI),))
        error = body.get("error")
        if isinstance(error, dict) and error.get("code") in self.error.unserved:
            return Judgement(skip=f"not served here: {shown(error.get('message'))}")
        findings = list(broken_inside(answer, error, self.error, canaries, body))
        if isinstance(error, dict) and error.get("request_id", self.identity) != self.identity:
            findings.append(Finding("job", f"error.request_id is {shown(error['request_id'])}, not the job's", OMNI))
        if self.stored is not None and error != self.stored:
            findings.append(Finding("job", f"the error changed: {shown(self.stored)} became {shown(error)}", OMNI))
        return Judgement(tuple(findings))


@dataclass(frozen=True, slots=True)
class Listed:
    """A list in which the job has the error that it has by itself."""

    identity: str
    stored: Any
    success: bool = False

    def describe(self) -> str:
        return "200, a list in which the failed job has the same error"

    def judge(self, answer: Answer, canaries: Canaries, contract: Contract) -> Judgement:
        if answer.status != 200:
            return Judgement(broken_rules(answer, _OK, canaries))
        body = answer.json()
        jobs = body.get("data") if isinstance(body, dict) else None
        found = [job for job in jobs or [] if isinstance(job, dict) and job.get("id") == self.identity]
        if not found:
            return Judgement((Finding("job", "the list does not have the job", OMNI),))
        if found[0].get("error") != self.stored:
            text = f"in the list its error is {shown(found[0].get('error'))}, by itself {shown(self.stored)}"
            return Judgement((Finding("job", text, OMNI),))
        return Judgement()
