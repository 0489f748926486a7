# SPDX-License-Identifier: Apache-2.0
"""Reports for people: whole, safe against hostile text, and in need of nothing but themselves."""

import io
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from rich.console import Console

from vllm_omni_errors.report import html, text
from vllm_omni_errors.report.model import ids_alone, summary

HOSTILE = "<script>alert(1)</script>\"'&amp;{{ 7*7 }}\x1b[31m\x00\u202e"
VOID = {"meta", "br", "link", "img"}


class Page(HTMLParser):
    """Collects elements, attributes and text, and checks that elements nest."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def values(self, tag: str, attribute: str) -> list[str | None]:
        return [attributes[attribute] for name, attributes in self.elements if name == tag and attribute in attributes]

    @property
    def text(self) -> str:
        return "".join(self.words)


def evidence(body: str = '{"error": {"code": 400}}', *, answered: bool = True) -> dict[str, Any]:
    request = {"method": "POST", "path": "/v1/x", "headers": {"A": "b"}, "body": "{}", "curl": "curl -X POST"}
    response = {"status": 400, "headers": {"server": "x"}, "body": body} if answered else None
    return {
        "request": request,
        "response": response,
        "seconds": 0.12,
        "problem": None if answered else "no answer within 15 s",
        "expected": "404 NotFoundError",
        "counted": "http_requests_total: 4xx +1",
        "findings": [],
    }


def check(identifier: str, verdict: str = "pass", why: str = "200", **changes: Any) -> dict[str, Any]:
    findings = [{"rule": "status", "text": why}] if verdict == "fail" else []
    return {
        "id": identifier,
        "transport": "http",
        "name": f"name of {identifier}",
        "rule": "A rule.",
        "source": "contract, section 1",
        "verdict": verdict,
        "why": why,
        "seconds": 0.5,
        "findings": findings,
        "beyond": [],
        "evidence": [evidence()],
    } | changes


def report(*checks: dict[str, Any]) -> dict[str, Any]:
    verdicts = [item["verdict"] for item in checks]
    return {
        "format": 1,
        "url": "http://127.0.0.1:8000",
        "model": "tiny",
        "started": "2026-01-01T00:00:00+00:00",
        "seconds": 12.3,
        "probe_version": "0.1.0",
        "server": {"version": "0.30.0"},
        "notes": ["A note."],
        "checks": list(checks),
        "passed": verdicts.count("pass"),
        "failed": verdicts.count("fail"),
        "skipped": verdicts.count("skip"),
    }


STOCK = report(check("a.one", "fail", "answered 400"), check("a.two"), check("a.three", "skip", "no such route"))
MIGRATED = report(check("a.one"), check("a.two"), check("a.four", "skip", "dead"))


def test_a_page_has_every_check_with_its_verdict() -> None:
    page = Page(html.render(STOCK))
    assert page.open == []
    assert page.values("details", "data-check") == ["a.one", "a.two", "a.three"]
    sides = [value for value in page.values("span", "class") if value and value.startswith("side ")]
    assert sides == ["side fail", "side pass", "side skip"]


def test_a_page_leads_to_what_is_broken() -> None:
    page = Page(html.render(STOCK))
    assert page.values("a", "href") == ["#a.one"]
    assert page.values("div", "id") == ["a.one", "a.two", "a.three"]


def test_a_page_shows_request_answer_expectation_and_command() -> None:
    words = Page(html.render(STOCK)).text
    for shown in ("answered 400", "POST /v1/x", '"code": 400', "Expected: 404 NotFoundError", "4xx +1", "curl -X POST"):
        assert shown in words


def test_a_comparison_has_every_check_of_every_side() -> None:
    page = Page(html.render_comparison({"stock": STOCK, "migrated": MIGRATED}))
    assert page.open == []
    assert page.values("details", "data-check") == ["a.one", "a.two", "a.three", "a.four"]
    sides = [(a["data-side"], a["class"]) for tag, a in page.elements if tag == "span" and "data-side" in a]
    assert sides[:2] == [("stock", "side fail"), ("migrated", "side pass")]
    assert sides[-2:] == [("stock", "side skip"), ("migrated", "side skip")]
    assert "not part of this run" in page.text


def test_no_answer_is_shown_as_such() -> None:
    page = Page(html.render(report(check("a.one", "fail", "hangs", evidence=[evidence(answered=False)]))))
    assert "no answer within 15 s" in page.text


def test_hostile_text_stays_text() -> None:
    hostile = check("a.one", "fail", HOSTILE, name=HOSTILE, evidence=[evidence(HOSTILE)])
    written = html.render_comparison({HOSTILE: report(hostile)})
    page = Page(written)
    assert "script" not in {tag for tag, _ in page.elements}
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert "\x00" not in written
    assert "\x1b" not in written
    assert "\u202e" not in written
    assert "{{ 7*7 }}" in page.text


def test_a_page_needs_nothing_from_anywhere() -> None:
    page = Page(html.render_comparison({"stock": STOCK, "migrated": MIGRATED}))
    tags = {tag for tag, _ in page.elements}
    assert tags.isdisjoint({"script", "link", "img", "iframe", "object", "video", "audio", "form"})
    assert not {name for _, attributes in page.elements for name in attributes} & {"src", "action", "srcset"}
    assert all(str(address).startswith("#") for tag, _ in page.elements for address in page.values(tag, "href"))
    assert not re.search(r"url\(|@import|@font-face", page.text)


def test_long_bodies_are_bounded() -> None:
    page = html.render(report(check("a.one", evidence=[evidence("x" * 1_000_000)])))
    assert len(page) < 40_000


@pytest.mark.parametrize("columns", [80, 140])
def test_the_table_fits_the_terminal(columns: int) -> None:
    long = report(*STOCK["checks"], check("a.long", "fail", "answered 400, " * 100))
    for show in (
        lambda console: text.print_report(long, console),
        lambda console: text.print_comparison({"stock": long, "migrated": MIGRATED}, console),
    ):
        console = Console(width=columns, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
        show(console)
        lines = console.export_text().splitlines()
        assert max(len(line) for line in lines) <= columns
        assert any("name of a.long" in line for line in lines)


def test_in_80_columns_no_id_name_status_or_address_is_cut() -> None:
    long = {name: f"{name}-{'x' * 90}-end" for name in ("id", "name", "side", "model", "reason")}
    broken = check(long["id"], "fail", f"answered 500, {'y' * 100}", name=long["name"])
    skipped = check("a.skip", "skip", long["reason"], name=long["name"])
    run = report(broken, skipped) | {"model": long["model"], "url": f"http://{'h' * 100}:8000"}
    for show, shown in (
        (lambda console: text.print_report(run, console), ("id", "model", "reason")),
        (lambda console: text.print_comparison({long["side"]: run, "b": run}, console), ("side",)),
    ):
        console = Console(width=80, record=True, file=io.StringIO())
        show(console)
        told = console.export_text()
        assert "…" not in told.replace("yyy…", "")
        assert "answered 500," in told
        assert told.count("-end") >= len(shown) + 2
        assert all(long[name] in "".join(told.split()) for name in shown)


def test_the_table_does_not_pass_control_characters_on() -> None:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    text.print_report(report(check("a.one", "fail", HOSTILE)), console)
    shown = console.export_text()
    assert "\x1b" not in shown
    assert "\x00" not in shown
    assert "<script>" in shown


def test_what_only_lacks_the_ids_is_counted_apart() -> None:
    only_ids = check("a.ids", "fail", findings=[{"rule": "ids", "text": "no request_id"}])
    mixed = report(only_ids, check("a.one", "fail", "answered 400"), check("a.two"))
    assert ids_alone(mixed) == 1
    assert summary(mixed) == "1 kept, 2 broken (1 of them in the ids alone), 0 skipped"
