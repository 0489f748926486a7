# SPDX-License-Identifier: Apache-2.0
"""A report as JUnit XML, for what shows test results: one suite for each transport, one case for each check."""

import re
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from junitparser import Failure, JUnitXml, Skipped, TestCase, TestSuite

from vllm_omni_errors.report.model import Reportable, as_json

# What XML 1.0 has no place for, even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(report: Reportable) -> str:
    """The document as text."""
    data = as_json(report)
    document = JUnitXml("omni-errors probe")
    for transport, checks in groupby(
        sorted(data["checks"], key=lambda item: item["transport"]), lambda c: c["transport"]
    ):
        suite = TestSuite(transport)
        suite.add_property("url", data["url"])
        for item in checks:
            case = TestCase(item["id"], f"probe.{transport}", item["seconds"])
            if item["verdict"] == "fail":
                failure = Failure(_clean(item["why"]), item["findings"][0]["rule"] if item["findings"] else None)
                failure.text = _clean(_evidence(item))
                case.result = [failure]
            elif item["verdict"] == "skip":
                case.result = [Skipped(_clean(item["why"]))]
            suite.add_testcase(case)
        document.add_testsuite(suite)
    document.update_statistics()  # type: ignore[no-untyped-call]
    return str(document.tostring().decode())  # type: ignore[no-untyped-call]


def _evidence(item: Mapping[str, Any]) -> str:
    lines = [f"{item['rule']} ({item['source']})"]
    for each in item["evidence"]:
        answer = each["response"]["status"] if each["response"] else each["problem"]
        lines += [f"{each['request']['method']} {each['request']['path']} → {answer}", f"expected: {each['expected']}"]
        lines += [f"- {finding['rule']}: {finding['text']}" for finding in each["findings"]]
        lines.append(each["request"]["curl"])
    return "\n".join(lines)


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
