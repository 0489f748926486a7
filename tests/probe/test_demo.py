# SPDX-License-Identifier: Apache-2.0
"""The demonstration's verdicts, without servers: what it writes, what it returns, and that it stops what it started."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from script_module import load

from vllm_omni_errors.probe import CHECKS, Finding, ProbeError, Report, Result
from vllm_omni_rig.server import RigError


def report(broken: int, rule: str = "status") -> Report:
    results = tuple(
        Result(c.id, "http", c.name, c.rule, c.source, "fail", "why", findings=(Finding(rule, "why"),))
        if number < broken
        else Result(c.id, "http", c.name, c.rule, c.source, "pass", "200")
        for number, c in enumerate(CHECKS)
    )
    return Report("http://127.0.0.1:1", "tiny", "2026-01-01", 1.0, "0", {}, (), results)


class FakeServer:
    url = "http://127.0.0.1:1"
    running = 0

    def __enter__(self) -> "FakeServer":
        FakeServer.running += 1
        return self

    def __exit__(self, *_: object) -> None:
        FakeServer.running -= 1


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = load("demo")
    monkeypatch.setattr(module.signal, "signal", lambda *_: None)
    module.started = []

    def start(stages: int, *, tree: Path | None, **_: Any) -> FakeServer:
        module.started.append((stages, tree))
        return FakeServer()

    monkeypatch.setattr(module, "start", start)
    return module


def outcomes(demo: ModuleType, monkeypatch: pytest.MonkeyPatch, *results: Report | BaseException) -> None:
    remaining = list(results)

    def run(url: str, *, progress: Callable[..., None], destructive: bool) -> Report:
        assert destructive
        result = remaining.pop(0)
        if isinstance(result, BaseException):
            raise result
        return result

    monkeypatch.setattr(demo, "run", run)


@pytest.mark.parametrize(
    ("stock", "migrated", "code", "words"),
    [
        (report(12), report(0), 0, ""),
        (report(30), report(0), 0, ""),
        (report(11), report(0), 1, "the demonstration shows nothing"),
        (report(30, rule="ids"), report(0), 1, "the demonstration shows nothing"),
        (report(30), report(2), 1, "The migrated server breaks 2: ok.health, ok.models."),
    ],
)
def test_the_exit_code_says_whether_the_demonstration_shows_it(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    stock: Report, migrated: Report, code: int, words: str,
) -> None:  # fmt: skip
    outcomes(demo, monkeypatch, stock, migrated)
    assert demo.main(["--out", str(tmp_path / "demo.html"), "--tree", "some/tree"]) == code
    assert words in capsys.readouterr().err
    assert demo.started == [(2, None), (2, Path("some/tree"))]
    assert json.loads((tmp_path / "demo-stock.json").read_text())["failed"] == stock.failed
    assert json.loads((tmp_path / "demo-migrated.json").read_text())["failed"] == migrated.failed
    assert 'data-side="migrated"' in (tmp_path / "demo.html").read_text()


@pytest.mark.parametrize(
    ("error", "code"), [(ProbeError("gone"), 2), (RigError("no server"), 2), (KeyboardInterrupt(), 130)], ids=repr
)
def test_what_stops_the_demonstration_stops_the_server(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException, code: int
) -> None:
    outcomes(demo, monkeypatch, report(30), error)
    assert demo.main(["--out", str(tmp_path / "demo.html")]) == code
    assert len(demo.started) == 2
    assert FakeServer.running == 0
