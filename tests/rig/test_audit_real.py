# SPDX-License-Identifier: Apache-2.0
"""The audit of the installed vLLM-Omni, held against independent counts and against what was seen on the server.

Its counts, its reach, the gate over the whole tree, and the seams. Needs no server; pip downloads the older versions.
"""

import ast
import dataclasses
import fnmatch
import importlib.util
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from vllm_omni_errors.audit import Audit, Site, audit, document, gate, seams
from vllm_omni_errors.audit import ledger as ledgers
from vllm_omni_errors.audit.tree import find as find_tree

LEDGER = Path(__file__).parents[2] / "ledgers" / "vllm-omni-0.30.0"
ASKED, ROWS = 3_253, 3_601
"""Rows about sites that the audit asks about, and all: the rest is model code that a client's value reaches."""
OLDER = ("0.24.0", "0.26.0", "0.28.0")


@pytest.fixture(scope="module")
def installed() -> Path:
    spec = importlib.util.find_spec("vllm_omni")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache") / "audit.sqlite"


@pytest.fixture(scope="module")
def stock(installed: Path, cache: Path) -> Audit:
    return audit(installed, cache=cache)


def independent_count(tree: Path) -> Iterator[tuple[str, str, str]]:
    """Kind, name and path of each raise and except, by nothing but `ast.walk`."""
    for file in sorted(tree.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Raise):
                made = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
                name = getattr(made, "attr", None) or getattr(made, "id", None) or ""
                yield "raise", name, file.relative_to(tree).as_posix()
            elif isinstance(node, ast.ExceptHandler):
                yield "except", "", file.relative_to(tree).as_posix()


def test_counts_agree_with_an_independent_count(stock: Audit, installed: Path) -> None:
    found = list(independent_count(installed))
    everywhere = Counter(name for kind, name, _ in found if kind == "raise")
    entrypoints = Counter(name for kind, name, path in found if kind == "raise" and path.startswith("entrypoints/"))
    point = document.trend_point(stock.inventory)
    assert (point["raises"], point["excepts"]) == (
        sum(everywhere.values()),
        sum(kind == "except" for kind, *_ in found),
    )
    assert point["types"] == {name: everywhere[name] for name in point["types"]}
    assert point["entrypoints"] == {name: entrypoints[name] for name in point["entrypoints"]}


def test_counts_of_0_30_0(stock: Audit) -> None:
    point = document.trend_point(stock.inventory)
    assert (point["version"], point["files"], point["lines"]) == ("0.30.0", 1609, 573763)
    assert (point["raises"], point["excepts"]) == (7850, 2416)
    assert point["types"] == {
        "ValueError": 4921,
        "TypeError": 304,
        "RuntimeError": 878,
        "VLLMValidationError": 0,
        "GuardrailViolationError": 1,
        "HTTPException": 133,
    }
    assert point["entrypoints"]["ValueError"] == 249


def test_fingerprints_are_unique_and_the_same_in_a_second_run(stock: Audit, installed: Path, tmp_path: Path) -> None:
    prints = [site.fingerprint for site in stock.inventory.sites]
    assert len(set(prints)) == len(prints)
    assert audit(installed, cache=tmp_path / "other.sqlite").inventory == stock.inventory


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wheels")
    for version in OLDER:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
        subprocess.run([*command, f"vllm-omni=={version}"], check=True, capture_output=True, timeout=240)
    return {version: next(folder.glob(f"vllm_omni-{version}-*.whl")) for version in OLDER}


def test_the_table_of_the_rfc_as_a_trend(stock: Audit, older: dict[str, Path], cache: Path) -> None:
    points = [document.trend_point(audit(wheel, cache=cache).inventory) for wheel in older.values()]
    points.append(document.trend_point(stock.inventory))
    assert [point["version"] for point in points] == [*OLDER, "0.30.0"]
    assert [point["types"]["ValueError"] for point in points] == [1843, 2325, 3710, 4921]
    assert [point["entrypoints"]["ValueError"] for point in points] == [155, 174, 198, 249]
    assert [point["types"]["TypeError"] for point in points] == [117, 169, 228, 304]
    assert [point["types"]["RuntimeError"] for point in points] == [359, 468, 699, 878]
    assert [point["types"]["VLLMValidationError"] for point in points] == [0, 0, 0, 0]
    assert [point["types"]["GuardrailViolationError"] for point in points] == [1, 1, 1, 1]


def find(stock: Audit, path: str, function: str, kind: str, exception: str) -> list[Site]:
    return [
        site
        for site in stock.inventory.sites
        if (site.path, site.function, site.kind, site.exception) == (path, function, kind, exception)
    ]


def test_output_conversion_is_reported_as_the_clients_mistake(stock: Audit) -> None:
    sites = find(stock, "entrypoints/openai/images/helpers.py", "_normalize_image", "raise", "ValueError")
    assert len(sites) == 2
    for site in sites:
        assert site.boundaries == {"route": 2}
        assert {arrival.boundary.name for arrival in site.arrivals} == {
            "POST /v1/images/edits",
            "POST /v1/images/generations",
        }
        assert site.today == (400,)
        assert all("except ValueError: raises HTTPException 400" in arrival.clauses[0] for arrival in site.arrivals)


def test_chat_without_a_handler_answers_200(stock: Audit) -> None:
    path = "entrypoints/openai/api_server.py"
    [site] = find(stock, path, "create_chat_completion", "response", "create_error_response")
    assert (site.form, site.today) == ("returned", (200,))


def test_the_chat_route_translates_everything_to_500(stock: Audit) -> None:
    sites = find(stock, "entrypoints/openai/api_server.py", "create_chat_completion", "except", "Exception")
    assert (sites[0].does, sites[0].today) == (("raises HTTPException 500",), (500,))


def test_every_route_of_the_server_is_a_boundary(stock: Audit) -> None:
    names = {boundary.name for boundary in stock.inventory.boundaries}
    assert {"POST /v1/chat/completions", "POST /v1/videos", "POST /v1/images/edits", "WS /v1/realtime/video"} <= names
    assert sum(boundary.kind in ("route", "socket") for boundary in stock.inventory.boundaries) >= 36


@pytest.fixture(scope="module")
def reviewed(installed: Path, cache: Path) -> Audit:
    """Held against the ledger of this project."""
    return audit(installed, ledger=LEDGER, cache=cache)


def test_the_gate_passes_with_the_review(reviewed: Audit) -> None:
    assert reviewed.findings == []


def test_every_row_is_needed(reviewed: Audit) -> None:
    """Without it, the gate finds an open site, or one row too few about what the audit does not ask about."""
    assert reviewed.ledger is not None
    assert reviewed.matched is not None
    sites = {site.fingerprint: site for site in reviewed.inventory.sites}
    rows = list(reviewed.matched.rows.values())
    asked = [row for row in rows if sites[row.fingerprint].asked]
    covered = [row for row in rows if any(rule.covers(sites[row.fingerprint]) for rule in reviewed.ledger.rules)]
    assert covered == []
    assert (len(asked), len(rows)) == (ASKED, ROWS)
    for row in rows[:: len(rows) // 24]:
        rest = {key: other for key, other in reviewed.ledger.rows.items() if other is not row}
        ledger = dataclasses.replace(reviewed.ledger, rows=rest)
        matched = ledgers.match(ledger, reviewed.inventory.sites)
        [finding] = gate.findings(reviewed.inventory, ledger, matched, date(2026, 12, 1))
        found = ("open", row.fingerprint) if sites[row.fingerprint].asked else ("row-count", "")
        assert (finding.code, finding.fingerprint) == found


def test_a_raise_that_is_added_to_a_route_is_noticed(installed: Path, cache: Path, tmp_path: Path) -> None:
    tree = tmp_path / "vllm_omni"
    shutil.copytree(installed, tree, ignore=shutil.ignore_patterns("__pycache__"))
    server = tree / "entrypoints" / "openai" / "api_server.py"
    route = (
        '\n\n@router.get("/v1/new")\nasync def new_route(size: int):\n    raise ValueError(f"no such size: {size}")\n'
    )
    server.write_text(server.read_text() + route)
    [finding] = audit(tree, ledger=LEDGER, cache=cache).findings
    assert (finding.code, finding.path) == ("open", "entrypoints/openai/api_server.py")
    assert finding.text.startswith("new_route: raise of ValueError is not decided")


def test_rows_are_found_again_in_another_version(older: dict[str, Path], cache: Path) -> None:
    result = audit(older["0.28.0"], ledger=LEDGER, cache=cache)
    assert result.matched is not None
    assert len(result.matched.rows) > 2000
    assert len(result.matched.moved) > 50


def test_nothing_of_the_trees_text_is_in_the_review(stock: Audit) -> None:
    texts = {site.text for site in stock.inventory.sites if " " in site.text and len(site.text) > 20}
    quoted = [
        (file.name, text)
        for file in LEDGER.rglob("*.jsonl")
        for line in file.read_text().splitlines()
        for text in json.loads(line).values()
        if isinstance(text, str) and text in texts
    ]
    assert quoted == []


def test_vllm_itself_is_read_without_a_crash(cache: Path) -> None:
    spec = importlib.util.find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    result = audit(Path(spec.origin).parent, cache=cache)
    assert (result.inventory.package, len(result.inventory.sites) > 5000) == ("vllm", True)


# ---- seams ----

SEAMS = Path(__file__).parents[2] / "ledgers" / "upstream-0.30.0"
MIGRATED = Path(__file__).parents[2] / "build" / "migrated" / "vllm_omni"
SERVING = ("vllm.entrypoints.generate.base.serving", "vllm.entrypoints.openai.chat_completion.serving",
           "vllm.entrypoints.serve.engine.serving", "vllm.entrypoints.speech_to_text.realtime.connection")  # fmt: skip
"""Modules of vLLM with the classes that vLLM-Omni's handlers extend."""


@pytest.fixture(scope="module")
def upstream() -> Path:
    spec = importlib.util.find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def module_of(upstream: Path, name: str) -> ast.Module:
    place = upstream.parent / name.replace(".", "/")
    file = place.with_suffix(".py") if place.with_suffix(".py").is_file() else place / "__init__.py"
    return ast.parse(file.read_bytes())


def definitions(tree: ast.Module) -> set[str]:
    """Functions, classes, methods, attributes of instances and imported names of a module."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}.{method.name}" for method in methods}
            stored = (part for part in ast.walk(node) if isinstance(part, ast.Attribute))
            found |= {f"{node.name}.{part.attr}" for part in stored if isinstance(part.ctx, ast.Store)}
    return found


def test_the_seams_are_complete_and_none_is_stale(installed: Path) -> None:
    tree = find_tree(installed)
    checked = seams.check(seams.load(SEAMS), tree)
    assert (checked.stale, checked.open) == ([], [])
    assert seams.findings(seams.load(SEAMS), tree) == []


def test_the_seams_are_the_same_in_the_migrated_tree() -> None:
    """A rewrite wraps a call or the clause around it; the call stays, and whatever it adds is no call of such code."""
    assert seams.findings(seams.load(SEAMS), find_tree(MIGRATED)) == []


def test_the_gate_notices_any_seam_that_loses_its_row(installed: Path) -> None:
    ledger = seams.load(SEAMS)
    imported = ("entrypoints/openai/serving_chat.py", "OmniOpenAIServingChat._preprocess_chat", "merge_kwargs")
    method = (
        "engine/async_omni_engine.py",
        "AsyncOmniEngine._build_cfg_companions",
        "self.input_processor.process_inputs",
    )
    rows = tuple(row for row in ledger.rows if (row.path, row.function, row.call) not in (imported, method))
    assert len(rows) == len(ledger.rows) - 2
    opened = seams.check(dataclasses.replace(ledger, rows=rows), find_tree(installed)).open
    assert {(call.path, call.function, call.name) for call in opened} == {imported, method}


def test_a_method_with_one_row_is_watched_too() -> None:
    """Nothing else would ask about its call if the row is lost; an imported function is asked about by its module."""
    ledger = seams.load(SEAMS)
    rows = Counter(row.callee for row in ledger.rows)
    lost = {
        row.callee
        for row in ledger.rows
        if rows[row.callee] == 1 and "." in row.call
        if row.call.rpartition(".")[2] == row.callee.rpartition(":")[2].rpartition(".")[2]
    }
    assert lost
    assert lost - set(ledger.watched) == set()


def test_what_the_seams_call_is_in_vllm(upstream: Path) -> None:
    ledger = seams.load(SEAMS)
    missing = [
        callee
        for callee in {*(row.callee for row in ledger.rows), *ledger.watched}
        if callee.partition(":")[2].removesuffix(".__init__")
        not in definitions(module_of(upstream, callee.partition(":")[0]))
    ]
    assert missing == []


def test_every_inherited_method_that_a_handler_calls_was_reviewed(installed: Path, upstream: Path) -> None:
    """Found by nothing but the sources: methods of vLLM's serving classes that vLLM-Omni's call on themselves."""
    inherited: dict[str, set[str]] = {}
    for module in SERVING:
        for name in definitions(module_of(upstream, module)):
            if "." in name and name.rpartition(".")[2] != "parser_cls":  # what it makes is asked about by its own name
                inherited.setdefault(name.rpartition(".")[2], set()).add(f"{module}:{name}")
    own: set[str] = set()
    called: set[str] = set()
    for file in sorted((installed / "entrypoints" / "openai").rglob("*.py")):
        for handler in (node for node in ast.walk(ast.parse(file.read_bytes())) if isinstance(node, ast.ClassDef)):
            bases = [getattr(base, "id", "") for base in handler.bases]
            if not any(base.endswith(("Serving", "ServingChat", "Connection")) for base in bases):
                continue
            own |= {part.name for part in handler.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)}
            for node in ast.walk(handler):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    on = ast.unparse(node.func.value)
                    called |= {f"{on}.{node.func.attr}"} if on in ("self", "super()") else set()
    ledger = seams.load(SEAMS)
    reviewed = {row.callee for row in ledger.rows}
    unknown = {
        call
        for call in called
        for on, _, name in [call.rpartition(".")]
        if name in inherited and (on == "super()" or name not in own)
        if not any(
            callee in reviewed or any(fnmatch.fnmatchcase(callee, pattern) for pattern in ledger.apart)
            for callee in inherited[name]
        )
    }
    assert {"self._check_model", "self._maybe_get_adapters", "super().start_generation"} <= called
    assert unknown == set()
