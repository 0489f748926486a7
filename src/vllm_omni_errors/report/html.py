# SPDX-License-Identifier: Apache-2.0
"""Reports as one HTML page that needs nothing else: no script, no font, no image from anywhere."""

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vllm_omni_errors.report.model import TRANSPORTS, WORDS, Reportable, as_json, beyond, by_check, ids_alone

BODY_CHARACTERS = 4_000


def render(report: Reportable) -> str:
    """A page about one run: each check with its verdict, and behind it requests, answers and what was expected."""
    return _page({"": report}, "Error contract")


def render_comparison(sides: Mapping[str, Reportable]) -> str:
    """A page about several runs of the same checks, side by side, in the order of `sides`."""
    return _page(sides, "Error contract: " + " and ".join(sides))


def _page(sides: Mapping[str, Reportable], title: str) -> str:
    reports = {name: as_json(report) for name, report in sides.items()}
    return _environment().get_template("report.html.j2").render(title=title, reports=reports, rows=by_check(reports))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("vllm_omni_errors.report"),
        autoescape=True,
        finalize=_visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"body": _body, "ids_alone": ids_alone, "beyond": beyond}
    environment.globals |= {"words": WORDS, "transports": TRANSPORTS}
    return environment


def _visible(value: object) -> object:
    """A page holds no control character and none that turns the text around, whatever a server sends."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\u{ord(c):04x}" for c in value)


def _body(text: str) -> str:
    """A body for people: JSON indented, all else as it is, bounded."""
    with suppress(ValueError):
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return text if len(text) <= BODY_CHARACTERS else text[:BODY_CHARACTERS] + "…"
