# SPDX-License-Identifier: Apache-2.0
"""An audit as SARIF 2.1.0, for code scanning: relative paths, and fingerprints of the content, which outlive moves."""

from importlib.metadata import version
from typing import Any

from vllm_omni_errors.audit import Audit
from vllm_omni_errors.audit.gate import CODES, Finding, open_site

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "SRCROOT"
FINGERPRINT = "vllmOmniErrorsSite/v1"
INFORMATION = "https://github.com/vllm-project/vllm-omni"


def render(audit: Audit) -> dict[str, Any]:
    """The findings of the gate; without a ledger, every site that a review would have to decide, as a note."""
    found = list(audit.findings)
    if audit.ledger is None:
        found += [open_site(site) for site in audit.inventory.sites if site.asked]
    placed = [finding for finding in found if finding.path]
    codes = sorted({finding.code for finding in placed})
    notes = [finding for finding in found if not finding.path]
    level = "note" if audit.ledger is None else "error"
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "omni-errors audit",
                        "version": version("vllm-omni-errors"),
                        "informationUri": INFORMATION,
                        "rules": [
                            {"id": code, "name": code, "shortDescription": {"text": CODES[code]}} for code in codes
                        ],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "originalUriBaseIds": {ROOT: {"description": {"text": "The top of the audited checkout or wheel."}}},
                "invocations": [
                    {
                        "executionSuccessful": True,
                        "toolExecutionNotifications": [
                            {"level": "note", "message": {"text": f"{note.text} {note.next_step}"}} for note in notes
                        ],
                    }
                ],
                "results": [_result(audit, finding, codes.index(finding.code), level) for finding in placed],
            }
        ],
    }


def _result(audit: Audit, finding: Finding, rule: int, level: str) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": _artifact(audit, finding)}
    location["region"] = {"startLine": max(finding.line, 1)}
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": "error" if finding.code == "unparsed" else level,
        "message": {"text": f"{finding.text} {finding.next_step}"},
        "locations": [{"physicalLocation": location}],
    }
    if finding.fingerprint:
        result["partialFingerprints"] = {FINGERPRINT: finding.fingerprint}
    return result


def _artifact(audit: Audit, finding: Finding) -> dict[str, str]:
    if finding.path == "ledger.toml":
        return {"uri": finding.path}
    return {"uri": audit.tree.prefix + finding.path, "uriBaseId": ROOT}
