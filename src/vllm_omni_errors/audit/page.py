# SPDX-License-Identifier: Apache-2.0
"""An audit as one HTML page that needs nothing else: a map of the tree, the queue with filters, and the trend."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from vllm_omni_errors.audit import Audit
from vllm_omni_errors.audit.document import RFC_TYPES, after, summary
from vllm_omni_errors.audit.inventory import Site, certain_kinds
from vllm_omni_errors.audit.reach import BOUNDARY_KINDS
from vllm_omni_errors.audit.table import weight

MAP_WIDTH, MAP_HEIGHT = 1000.0, 460.0
CHART_WIDTH, CHART_HEIGHT, CHART_MARGIN = 520.0, 180.0, 36.0
TEXT_CHARACTERS = 300


class Box(NamedTuple):
    """A rectangle of the map: its name, what it stands for, and where it is."""

    name: str
    sites: int
    open: int
    x: float
    y: float
    width: float
    height: float


class Area(NamedTuple):
    """A first folder with the boxes of its files."""

    box: Box
    files: list[Box]


def render(audit: Audit, trend: Sequence[Mapping[str, Any]] = ()) -> str:
    """The page. `trend` holds `document.trend_point` of each version, oldest first."""
    sites = sorted((site for site in audit.inventory.sites if site.asked), key=weight)
    return (
        _environment()
        .get_template("audit.html.j2")
        .render(
            title=f"{audit.inventory.package} {audit.inventory.version}: error sites",
            audit=audit,
            summary=summary(audit),
            areas=_areas(audit, sites),
            map_size=(MAP_WIDTH, MAP_HEIGHT),
            chart=_chart(trend),
            trend=trend,
            rfc_types=RFC_TYPES,
            kinds=BOUNDARY_KINDS,
            sites=[_row(audit, site) for site in sites],
        )
    )


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("vllm_omni_errors.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _row(audit: Audit, site: Site) -> list[Any]:
    """A site as the page's script reads it; the order is that of its columns."""
    decided = audit.decision(site)
    nearest = site.arrivals[0] if site.arrivals else None
    return [
        site.path,
        site.line,
        site.function,
        site.kind,
        site.exception,
        _shown(site.text if site.kind != "except" else ", ".join(site.does)),
        list(site.today),
        after(audit, site),
        {kind: number for kind, number in site.boundaries.items() if kind not in ("model", "command")},
        decided[0] if decided else "",
        decided[1] if decided else "",
        site.fingerprint,
        list(site.echo),
        bool(site.arrivals) and not certain_kinds(site),
        [nearest.boundary.name, list(nearest.steps), list(nearest.clauses), nearest.outcome, list(nearest.guesses)]
        if nearest
        else None,
    ]


def _shown(text: str) -> str:
    clean = "".join(c if c.isprintable() else " " for c in text)
    return clean if len(clean) <= TEXT_CHARACTERS else clean[: TEXT_CHARACTERS - 1] + "…"


# ---- the map ----


def _areas(audit: Audit, sites: Sequence[Site]) -> list[Area]:
    files: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for site in sites:
        area = site.path.partition("/")[0]
        counts = files[area].setdefault(site.path, [0, 0])
        counts[0] += 1
        counts[1] += audit.decision(site) is None
    sizes = {area: sum(counts[0] for counts in found.values()) for area, found in files.items()}
    found = []
    for area, (x, y, width, height) in squarified(sizes, 0.0, 0.0, MAP_WIDTH, MAP_HEIGHT).items():
        inner = squarified({path: counts[0] for path, counts in files[area].items()}, x, y, width, height)
        boxes = [Box(path, files[area][path][0], files[area][path][1], *place) for path, place in inner.items()]
        is_open = sum(counts[1] for counts in files[area].values())
        found.append(Area(Box(area, sizes[area], is_open, x, y, width, height), boxes))
    return found


def squarified(
    sizes: Mapping[str, float], x: float, y: float, width: float, height: float
) -> dict[str, tuple[float, float, float, float]]:
    """Rectangles of the given areas that fill one, as square as may be (Bruls, Huizing, van Wijk)."""
    total = sum(sizes.values())
    if total <= 0:
        return {}
    scale = width * height / total
    rest = sorted(
        ((name, size * scale) for name, size in sizes.items() if size > 0), key=lambda item: (-item[1], item[0])
    )
    found: dict[str, tuple[float, float, float, float]] = {}
    while rest:
        side = min(width, height)
        row = [rest[0]]
        for item in rest[1:]:
            if _worst([*row, item], side) > _worst(row, side):
                break
            row.append(item)
        rest = rest[len(row) :]
        thickness = sum(area for _, area in row) / side if side else 0.0
        place = 0.0
        for name, area in row:
            length = area / thickness if thickness else 0.0
            if width >= height:
                found[name] = (x, y + place, thickness, length)
            else:
                found[name] = (x + place, y, length, thickness)
            place += length
        if width >= height:
            x, width = x + thickness, width - thickness
        else:
            y, height = y + thickness, height - thickness
    return found


def _worst(row: Sequence[tuple[str, float]], side: float) -> float:
    areas = [area for _, area in row]
    total = sum(areas)
    return max(side * side * max(areas) / total**2, total**2 / (side * side * min(areas)))


# ---- the trend ----


class Line(NamedTuple):
    """One line of the chart, with a mark at each version."""

    name: str
    points: str
    marks: list[tuple[float, float, int]]
    below: bool


class Chart(NamedTuple):
    """The chart: its size, its lines, and where each version stands."""

    width: float
    height: float
    lines: list[Line]
    versions: list[tuple[float, str]]
    top: int


def _chart(trend: Sequence[Mapping[str, Any]]) -> Chart | None:
    if len(trend) < 2:
        return None
    values = {
        "sites to decide": [point["asked"] for point in trend],
        "raise ValueError": [point["types"]["ValueError"] for point in trend],
        "raise RuntimeError": [point["types"]["RuntimeError"] for point in trend],
    }
    top = max(max(numbers) for numbers in values.values()) or 1
    step = (CHART_WIDTH - 2 * CHART_MARGIN) / (len(trend) - 1)
    lines = []
    for name, numbers in values.items():
        marks = [
            (
                round(CHART_MARGIN + number * step, 1),
                round(CHART_HEIGHT - 20 - (CHART_HEIGHT - 40) * value / top, 1),
                value,
            )
            for number, value in enumerate(numbers)
        ]
        lines.append(Line(name, " ".join(f"{x},{y}" for x, y, _ in marks), marks, name == "sites to decide"))
    versions = [(round(CHART_MARGIN + number * step, 1), str(point["version"])) for number, point in enumerate(trend)]
    return Chart(CHART_WIDTH, CHART_HEIGHT, lines, versions, top)
