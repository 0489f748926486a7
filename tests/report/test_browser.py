# SPDX-License-Identifier: Apache-2.0
"""The pages in a real browser: they work without a network, and what they promise to filter, they filter."""

import shutil
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from test_report import check, report

from vllm_omni_errors.audit import audit
from vllm_omni_errors.audit.page import render
from vllm_omni_errors.report import html

Open = Callable[[str], Page]

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
TREE = {
    "entrypoints/api_server.py": """
        from fastapi import APIRouter

        router = APIRouter()


        @router.post("/v1/sizes")
        async def sizes(size):
            if not size:
                raise ValueError(f"no size {size}")
            raise RuntimeError("the sizes are gone")
    """,
    "entrypoints/helpers.py": "def helper(x):\n    raise TypeError('no helper')\n",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, NAMES)), None)
    assert path is not None, "There is no Chromium; run `make packages`."
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Opens a page; at the end, it asked for nothing but itself and no script failed."""
    asked: list[str] = []
    failed: list[str] = []
    pages: list[Page] = []

    def show(text: str) -> Page:
        file = tmp_path / "page.html"
        file.write_text(text, encoding="utf-8")
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        pages.append(page)
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: failed.append(str(error)))
        page.on("console", lambda message: failed.append(message.text) if message.type == "error" else None)
        page.goto(file.as_uri())
        return page

    yield show
    for page in pages:
        page.close()
    assert asked == [(tmp_path / "page.html").as_uri()] * len(pages)
    assert failed == []


@pytest.fixture
def audit_page(tmp_path: Path) -> str:
    for path, text in {"__init__.py": "", **TREE}.items():
        file = tmp_path / "checkout" / "vllm_omni" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
    return render(audit(tmp_path / "checkout", cache=tmp_path / "cache.sqlite"))


def shown(page: Page) -> list[str]:
    return [row.inner_text() for row in page.locator("#queue tr.site").all()]


def test_the_queue_of_an_audit_can_be_searched_and_reset(opened: Open, audit_page: str) -> None:
    page = opened(audit_page)
    everything = shown(page)
    assert len(everything) == 3
    page.fill("#text", "sizes are gone")
    assert len(shown(page)) == 1
    assert "RuntimeError" in shown(page)[0]
    page.fill("#text", "")
    assert shown(page) == everything


def test_a_box_of_the_map_filters_the_queue_to_its_file(opened: Open, audit_page: str) -> None:
    page = opened(audit_page)
    box = page.locator('#map [data-path="entrypoints/api_server.py"]').first
    size = box.bounding_box()
    assert size is not None
    assert size["width"] > 50
    assert size["height"] > 50
    box.click()
    assert all("api_server.py" in row for row in shown(page))


def test_a_site_of_an_audit_opens_to_how_it_is_reached(opened: Open, audit_page: str) -> None:
    page = opened(audit_page)
    page.locator("#queue tr.site").first.click()
    assert "POST /v1/sizes" in page.locator("#queue tr.more").first.inner_text()


@pytest.mark.parametrize("way", [".check > summary", ".broken a"])
def test_a_check_of_a_report_opens_to_its_request_and_answer(opened: Open, way: str) -> None:
    page = opened(html.render(report(check("chat.size", "fail", "answered 500"))))
    answer = page.get_by_text('"code": 400').first
    assert not answer.is_visible()
    page.locator(way).first.click()
    answer.wait_for(state="visible")


@pytest.mark.parametrize("width", [400, 1280])
def test_a_report_fits_its_window(opened: Open, width: int) -> None:
    page = opened(html.render(report(check("chat.size", "fail", "answered 500 and more " * 9))))
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
