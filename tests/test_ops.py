# SPDX-License-Identifier: Apache-2.0
"""The operations pack: the rules do what they say, and every name in it is one that is exported."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_omni_errors import metrics

OPS = Path(__file__).parent.parent / "ops"
RULES: dict[str, Any] = yaml.safe_load((OPS / "prometheus" / "rules.yml").read_text())
TESTS: dict[str, Any] = yaml.safe_load((OPS / "prometheus" / "rules.test.yml").read_text())
DASHBOARD: dict[str, Any] = json.loads((OPS / "grafana" / "errors.json").read_text())

EXPORTED = {metrics.ERRORS: set(metrics.ERROR_LABELS), metrics.BROKEN_RECORDS: set(metrics.BROKEN_RECORD_LABELS)}
FOREIGN = {"http_requests_total": {"handler", "method", "status"}}
SELECTOR = re.compile(r"(omni_\w+|http_requests_total)(?:\{([^}]*)\})?")


def promtool(*arguments: str) -> None:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False, cwd=OPS / "prometheus")
    assert done.returncode == 0, done.stdout + done.stderr


def rules() -> list[dict[str, Any]]:
    return [rule for group in RULES["groups"] for rule in group["rules"]]


def queries() -> Iterator[tuple[str, str]]:
    """Panel and query, with what Grafana fills in."""
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$__rate_interval", "1m").replace("$__range", "3h")


def test_the_rules_alert_when_they_should_and_only_then() -> None:
    promtool("test", "rules", "rules.test.yml")


def test_every_alert_is_tested_firing_and_silent() -> None:
    firing, silent = set(), set()
    for test in TESTS["tests"]:
        for case in test["alert_rule_test"]:
            (firing if case.get("exp_alerts") else silent).add(case["alertname"])
    alerts = {rule["alert"] for rule in rules() if "alert" in rule}
    assert firing == alerts
    assert silent == alerts


@pytest.mark.parametrize("alert", [rule for rule in rules() if "alert" in rule], ids=lambda rule: rule["alert"])
def test_an_alert_says_how_bad_it_is_and_what_to_do(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("info", "warning", "critical")
    assert alert["annotations"]["summary"].startswith("{{ $labels.job }}: ")
    assert alert["annotations"]["action"]


def test_every_query_of_the_dashboard_is_valid(tmp_path: Path) -> None:
    made = [{"record": f"panel:{number}", "expr": query} for number, (_, query) in enumerate(queries())]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": made}]}))
    promtool("check", "rules", str(file))


def test_rules_and_dashboard_use_only_what_is_exported_or_recorded() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    for text in [rule["expr"] for rule in rules()] + [query for _, query in queries()]:
        for metric, labels in SELECTOR.findall(text):
            known = EXPORTED.get(metric) or FOREIGN[metric]
            assert {label.split("=")[0].strip("!~ ") for label in re.findall(r"\w+\s*[!=]", labels)} <= known | {"job"}
        assert set(re.findall(r"omni:[\w:]+", text)) <= recorded


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    assert {panel["type"] for panel in DASHBOARD["panels"]} <= {"stat", "timeseries"}
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD["panels"]))) - {"__rate_interval", "__range"}
    assert used <= variables
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        assert panel["targets"]
