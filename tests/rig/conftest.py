# SPDX-License-Identifier: Apache-2.0
"""The servers that tests on the rig share, each started when the first test asks for it.

``stock``, ``stock_inline``, ``migrated``, ``migrated_inline`` and ``scripted(kind, variant)`` are shared by many
tests, so a test must leave them as it found them. One that kills or stalls a server takes a ``fresh_server``.
Each ends after the last test that uses it, so tests run in one process, file by file, in an order of their own.
"""

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import speaking
from offline import Offline

from vllm_omni_rig.server import Server, start

MIGRATED = Path(__file__).parents[2] / "build" / "migrated"

Start = Callable[..., Server]

SHARED = frozenset({"stock", "stock_inline", "migrated", "migrated_inline", "scripted"})
"""The fixtures below that share a server, or several."""


def tree_of(variant: str) -> Path | None:
    """The tree of ``stock`` (none: the installed wheel's own files) or of ``migrated``."""
    if variant == "stock":
        return None
    assert variant == "migrated", f"{variant}: a variant is stock or migrated"
    if not (MIGRATED / "vllm_omni").is_dir():
        pytest.fail(f"There is no migrated tree in {MIGRATED}; run `make migrated` first.", pytrace=False)
    return MIGRATED


class Servers:
    """Starts servers, remembers the shared ones, and stops all that it started."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._shared: dict[str, dict[tuple[Any, ...], Server]] = {}
        self._started: list[Server] = []
        self._numbers = count()

    def start(self, variant: str = "stock", stages: int = 2, **options: Any) -> Server:
        """Start a server that nobody shares; ``options`` are those of ``vllm_omni_rig.server.start``."""
        log = self._logs / f"{next(self._numbers)}-{variant}-{options.get('scripted') or stages}.log"
        server = start(stages, tree=tree_of(variant), log=log, **options)
        self._started.append(server)
        return server

    def shared(self, fixture: str, variant: str, stages: int = 2, scripted: str | None = None) -> Server:
        """The one server of that kind, started now if it is not running yet; it ends with its fixture."""
        mine = self._shared.setdefault(fixture, {})
        key = (variant, stages, scripted)
        if key not in mine:
            mine[key] = self.start(variant, stages, scripted=scripted)
        return mine[key]

    def stop_shared(self, fixture: str) -> None:
        """Stop the servers that a fixture shares."""
        stop(self._shared.pop(fixture, {}).values())

    def stop(self) -> None:
        """Stop all."""
        stop(self._started)


def stop(servers: Collection[Server]) -> None:
    if servers:
        with ThreadPoolExecutor(len(servers)) as executor:
            list(executor.map(Server.stop, servers))


RUNNING = pytest.StashKey[Servers]()
ENDS = pytest.StashKey[set[str]]()
"""On a test: the shared fixtures that no later one uses."""


@pytest.fixture(scope="session")
def servers(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    pool = pytestconfig.stash[RUNNING] = Servers(tmp_path_factory.mktemp("logs"))
    yield pool
    pool.stop()


@pytest.fixture(scope="module")
def stock(servers: Servers) -> Server:
    """The wheel's own files, two stages."""
    return servers.shared("stock", "stock")


@pytest.fixture(scope="module")
def stock_inline(servers: Servers) -> Server:
    """The wheel's own files, one stage inside the API process."""
    return servers.shared("stock_inline", "stock", 1)


@pytest.fixture(scope="module")
def migrated(servers: Servers) -> Server:
    """The migrated tree, two stages."""
    return servers.shared("migrated", "migrated")


@pytest.fixture(scope="module")
def migrated_inline(servers: Servers) -> Server:
    """The migrated tree, one stage inside the API process."""
    return servers.shared("migrated_inline", "migrated", 1)


@pytest.fixture(scope="module")
def scripted(servers: Servers) -> Start:
    """``scripted(kind, variant="stock")``: the scripted server of that kind (diffusion, video or multi)."""
    return lambda kind, variant="stock": servers.shared("scripted", variant, scripted=kind)


@pytest.fixture(scope="session")
def speakers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The migrated tree, over the scripted engine that speaks (speaking_server.py)."""
    with speaking.running("speakers", tree_of("migrated"), tmp_path_factory.mktemp("speakers")) as server:
        yield server


@pytest.fixture(scope="session")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Offline:
    """The migrated tree in Python: what came of the batches (offline.py) in each form."""
    tree = tree_of("migrated")
    assert tree is not None
    return Offline(tmp_path_factory.mktemp("offline"), tree)


@pytest.fixture
def fresh_server(servers: Servers) -> Iterator[Start]:
    """``fresh_server(variant="stock", stages=2, …)``: a server for this test alone, stopped after it."""
    mine: list[Server] = []

    def start_one(variant: str = "stock", stages: int = 2, **options: Any) -> Server:
        mine.append(servers.start(variant, stages, **options))
        return mine[-1]

    yield start_one
    for server in mine:
        server.stop()


def used_by(item: pytest.Item) -> frozenset[str]:
    """Which of the shared servers a test uses; a module may have a fixture of its own by the same name."""
    definitions = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    return frozenset(
        name for name in SHARED if name in definitions and not definitions[name][-1].baseid.endswith(".py")
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the files so that few shared servers run at a time: one that nobody asks still takes a fifth of a CPU."""
    used: dict[Path, set[str]] = {}
    for item in items:
        used.setdefault(item.path, set()).update(used_by(item))

    def place(item: pytest.Item) -> tuple[bool, ...]:
        names = used[item.path]
        return bool(names), names != {"scripted"}, "scripted" not in names, not names & {"stock", "stock_inline"}

    items.sort(key=place)
    last = {name: item for item in items for name in used_by(item)}
    for name, user in last.items():
        user.stash.setdefault(ENDS, set()).add(name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[Any]:
    """Stop the shared servers that no later test uses."""
    result = yield
    for name in item.stash.get(ENDS, ()):
        item.config.stash[RUNNING].stop_shared(name)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    """Say with a failed test where the logs of its servers are."""
    report = yield
    if report.failed:
        used = [value for value in getattr(item, "funcargs", {}).values() if isinstance(value, Server)]
        report.sections += [(f"Log of the server at {server.url}", str(server.log)) for server in used]
    return report
