# SPDX-License-Identifier: Apache-2.0
"""The command: exit codes, files, and what goes to which stream."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from faithful_server import Faithful, Problem, serving
from junitparser import JUnitXml

from vllm_omni_errors import cli
from vllm_omni_errors.probe import CHECKS, command
from vllm_omni_errors.probe.contract import Contract
from vllm_omni_errors.probe.media import refusing_url

FEW = tuple(check for check in CHECKS if check.id in ("ok.models", "route.unknown", "route.method"))
SECRET = "my-secret-token"


@pytest.fixture(autouse=True)
def few_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(url: str, **arguments: object) -> object:
        return real(url, checks=FEW, **arguments)  # type: ignore[arg-type]

    real = command.run
    monkeypatch.setattr(command, "run", run)


class AllowLost(Faithful):
    def headers(self, problem: Problem, request_id: str) -> dict[str, str]:
        return {"x-request-id": request_id}


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command.probe, arguments, catch_exceptions=False, env={"COLUMNS": "100"})


def test_no_finding_is_exit_code_0() -> None:
    with serving(Faithful()) as url:
        result = invoke(url)
    assert result.exit_code == 0
    assert "3 kept, 0 broken, 0 skipped" in result.stdout
    assert "1/3 pass list of models" in result.stderr


def test_a_finding_is_exit_code_1() -> None:
    with serving(AllowLost()) as url:
        result = invoke(url)
    assert result.exit_code == 1
    assert "✗  wrong method" in result.stdout
    assert "header Allow is None" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [(refusing_url(),), ("ftp://host",), ("http://127.0.0.1:1", "--model", "x")],
    ids=["nobody listens", "no HTTP", "no HTTP server"],
)
def test_what_cannot_run_is_exit_code_2(arguments: tuple[str, ...]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("omni-errors: ")
    assert result.stdout == ""


def test_json_and_html_are_written(tmp_path: Path) -> None:
    with serving(Faithful()) as url:
        invoke(url, "--json", str(tmp_path / "a.json"), "--html", str(tmp_path / "a.html"))
    data = json.loads((tmp_path / "a.json").read_text())
    assert [check["id"] for check in data["checks"]] == ["ok.models", "route.unknown", "route.method"]
    assert (data["passed"], data["failed"], data["skipped"]) == (3, 0, 0)
    assert {"id", "transport", "name", "verdict", "why", "evidence"} <= data["checks"][0].keys()
    assert "wrong method" in (tmp_path / "a.html").read_text()


def test_junit_has_a_case_for_each_check(tmp_path: Path) -> None:
    with serving(AllowLost()) as url:
        invoke(url, "--junit", str(tmp_path / "a.xml"))
    document = JUnitXml.fromfile(str(tmp_path / "a.xml"))
    assert (document.tests, document.failures, document.skipped) == (3, 1, 0)
    (suite,) = document
    cases = {case.name: case.result for case in suite}
    assert cases["ok.models"] == []
    (failure,) = cases["route.method"]
    assert (failure.message, failure.type) == ("header Allow is None, expected one with POST", "header")
    assert "curl -sS -i -X DELETE" in failure.text


def reports(tmp_path: Path) -> tuple[str, str]:
    """Of a server that keeps the contract, and of one that does not."""
    paths = str(tmp_path / "good.json"), str(tmp_path / "bad.json")
    for path, server in zip(paths, (Faithful(), AllowLost()), strict=True):
        with serving(server) as url:
            invoke(url, "--json", path)
    return paths


def test_two_reports_are_compared_and_only_what_is_new_counts(tmp_path: Path) -> None:
    good, bad = reports(tmp_path)
    worse = invoke("--compare", good, bad, "--html", str(tmp_path / "both.html"))
    assert worse.exit_code == 1
    assert "good: 3 kept, 0 broken, 0 skipped" in worse.stdout
    assert 'data-side="bad"' in (tmp_path / "both.html").read_text()
    assert invoke("--compare", bad, good).exit_code == 0
    assert invoke("--compare", bad, bad).exit_code == 0


def test_what_is_no_report_cannot_be_compared(tmp_path: Path) -> None:
    for name, content in (("a.json", "no"), ("b.json", '{"format": 1}')):
        (tmp_path / name).write_text(content)
    result = invoke("--compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"))
    assert result.exit_code == 2
    assert "a.json: not a report" in result.stderr


@pytest.mark.parametrize("arguments", [(), ("http://host", "--compare", __file__, __file__)], ids=["neither", "both"])
def test_a_url_or_two_reports(arguments: tuple[str, ...]) -> None:
    assert CliRunner().invoke(command.probe, arguments).exit_code == 2


@pytest.mark.parametrize(("option", "expected"), [("--read-only", "read_only"), ("--destructive", "destructive")])
def test_the_options_reach_the_run(monkeypatch: pytest.MonkeyPatch, option: str, expected: str) -> None:
    given: list[dict[str, object]] = []
    monkeypatch.setattr(command, "run", lambda url, **arguments: given.append(arguments) or _stop())
    invoke("http://host", option, "--as", "vllm")
    assert (given[0][expected], given[0]["contract"]) == (True, Contract.VLLM)


def test_json_to_standard_output_is_alone_there() -> None:
    with serving(Faithful()) as url:
        result = invoke(url, "--json", "-")
    assert json.loads(result.stdout)["passed"] == 3
    assert "3 kept" in result.stderr


@pytest.mark.parametrize("option", ["--json", "--html", "--junit"])
def test_a_folder_that_is_not_there_is_said_before_anything_is_sent(tmp_path: Path, option: str) -> None:
    result = invoke("http://127.0.0.1:1", option, str(tmp_path / "no" / "file"))
    assert result.exit_code == 2
    assert result.stderr.endswith("/no/file: there is no such folder; make it, or choose another file.\n")


def test_a_report_that_cannot_be_written_is_exit_code_2(tmp_path: Path) -> None:
    with serving(Faithful()) as url:
        result = invoke(url, "--html", "/proc/version")
    assert result.exit_code == 2
    assert result.stderr.startswith("1/3")
    assert "omni-errors: /proc/version: the report cannot be written: " in result.stderr


def test_the_base_url_of_a_client_is_pointed_out() -> None:
    with serving(Faithful()) as url:
        assert "without /v1" in invoke(f"{url}/v1").stderr


def test_a_header_is_sent_and_not_written(tmp_path: Path) -> None:
    with serving(Faithful()) as url:
        result = invoke(
            url, "--header", f"Authorization: Bearer {SECRET}", "--json", "-", "--html", str(tmp_path / "a.html")
        )
    assert result.exit_code == 0
    assert "Authorization" in result.stdout
    assert SECRET not in result.output + (tmp_path / "a.html").read_text()


def test_a_header_without_a_colon_is_not_quoted() -> None:
    result = invoke("http://host", "--header", SECRET)
    assert result.exit_code == 2
    assert SECRET not in result.output


def test_an_interruption_ends_it_as_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(url: str, **_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run", interrupted)
    assert cli.run(["probe", "http://host"]) == cli.ExitCode.INTERRUPTED


def test_the_deadline_is_scaled_for_generations(monkeypatch: pytest.MonkeyPatch) -> None:
    paces = []
    monkeypatch.setattr(command, "run", lambda url, **arguments: paces.append(arguments["pace"]) or _stop())
    invoke("http://host", "--deadline", "2")
    assert (paces[0].deadline_s, paces[0].generation_s) == (2, 16)


def _stop() -> object:
    raise command.ProbeError("enough")
