# SPDX-License-Identifier: Apache-2.0
"""The page of an audit: nothing from elsewhere, and nothing that the tree's text can break."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_omni_errors.audit import Audit, document
from vllm_omni_errors.audit.page import render, squarified

Make = Callable[..., Path]
Run = Callable[..., Audit]

HOSTILE = "def f(x):\n    raise ValueError(f'</script><script>document.title = 1</script> {x} &amp; <b>')\n"


@pytest.fixture
def page(make_tree: Make, run: Run) -> str:
    audit = run(make_tree({"entrypoints/hostile.py": HOSTILE}))
    point = document.trend_point(audit.inventory)
    return render(audit, [{**point, "version": "0.1.0", "asked": 3}, point])


def test_it_needs_nothing_from_elsewhere(page: str) -> None:
    assert re.findall(r"""(?:src|href)=|url\(|@import|https?:""", page) == []
    assert "default-src 'none'" in page


def test_the_trees_text_cannot_break_out(page: str) -> None:
    assert page.count("</script>") == 2


def test_its_data_are_the_sites_to_decide(page: str) -> None:
    data = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert len(json.loads(data.group(1))) == 10


def test_the_map_has_a_box_for_each_file(page: str) -> None:
    paths = re.findall(r'data-path="([^"]*)"', page)
    assert sorted(paths) == [
        "engine/orchestrator.py",
        "entrypoints/api_server.py",
        "entrypoints/helpers.py",
        "entrypoints/hostile.py",
        "entrypoints/serving.py",
    ]


sizes = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(1, 1000), min_size=1, max_size=12)


@given(sizes, st.floats(10, 1000), st.floats(10, 1000))
def test_boxes_fill_the_map_in_proportion(given_sizes: dict[str, int], width: float, height: float) -> None:
    boxes = squarified(given_sizes, 0.0, 0.0, width, height)
    total = sum(given_sizes.values())
    assert set(boxes) == set(given_sizes)
    for name, (x, y, box_width, box_height) in boxes.items():
        assert box_width * box_height == pytest.approx(width * height * given_sizes[name] / total, rel=1e-6)
        assert x >= -1e-6
        assert y >= -1e-6
        assert x + box_width <= width * (1 + 1e-6)
        assert y + box_height <= height * (1 + 1e-6)


def test_an_empty_tree_has_a_page(make_tree: Make, run: Run) -> None:
    assert "0" in render(run(make_tree(only={"a.py": ""})))
