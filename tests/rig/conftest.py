# SPDX-License-Identifier: Apache-2.0
"""The servers that tests on the rig share, each started when the first test asks for it.

``stock``, ``stock_inline``, ``migrated``, ``migrated_inline`` and ``scripted(kind, variant)`` are shared by many
tests, so a test must leave them as it found them. One that kills or stalls a server takes a ``fresh_server``.
With pytest-xdist and ``--dist loadgroup`` each of them is started by one worker only, and ends with its group.
"""

from collections.abc import Callable, Iterator
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

SHARED = frozenset({"stock", "stock_inline", "migrated", "migrated_inline"})


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
        self._shared: dict[tuple[Any, ...], Server] = {}
        self._started: list[Server] = []
        self._numbers = count()

    def start(self, variant: str = "stock", stages: int = 2, **options: Any) -> Server:
        """Start a server that nobody shares; ``options`` are those of ``vllm_omni_rig.server.start``."""
        log = self._logs / f"{next(self._numbers)}-{variant}-{options.get('scripted') or stages}.log"
        server = start(stages, tree=tree_of(variant), log=log, **options)
        self._started.append(server)
        return server

    def shared(self, variant: str, stages: int = 2, scripted: str | None = None) -> Server:
        """The one server of that kind, started now if it is not running yet."""
        key = (variant, stages, scripted)
        if key not in self._shared:
            self._shared[key] = self.start(variant, stages, scripted=scripted)
        return self._shared[key]

    def stop(self) -> None:
        if self._started:
            with ThreadPoolExecutor(len(self._started)) as executor:
                list(executor.map(Server.stop, self._started))
        self._started.clear()
        self._shared.clear()


RUNNING = pytest.StashKey[Servers]()


@pytest.fixture(scope="session")
def servers(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    pool = pytestconfig.stash[RUNNING] = Servers(tmp_path_factory.mktemp("logs"))
    yield pool
    pool.stop()


@pytest.fixture(scope="module")
def stock(servers: Servers) -> Server:
    """The wheel's own files, two stages."""
    return servers.shared("stock")


@pytest.fixture(scope="module")
def stock_inline(servers: Servers) -> Server:
    """The wheel's own files, one stage inside the API process."""
    return servers.shared("stock", 1)


@pytest.fixture(scope="module")
def migrated(servers: Servers) -> Server:
    """The migrated tree, two stages."""
    return servers.shared("migrated")


@pytest.fixture(scope="module")
def migrated_inline(servers: Servers) -> Server:
    """The migrated tree, one stage inside the API process."""
    return servers.shared("migrated", 1)


@pytest.fixture(scope="module")
def scripted(servers: Servers) -> Start:
    """``scripted(kind, variant="stock")``: the scripted server of that kind (diffusion, video or multi)."""
    return lambda kind, variant="stock": servers.shared(variant, scripted=kind)


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


def group_of(item: pytest.Function) -> str:
    """What one worker runs: all tests of scripted servers, all of the others that are shared, or those of a file."""
    used = set(item.fixturenames)
    if "scripted" in used:
        return "scripted"
    return "stages" if "servers" in used and used & SHARED else item.path.stem


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.xdist_group(group_of(item)))


def grouped(config: pytest.Config) -> bool:
    return bool(getattr(config.option, "loadgroup", False))


def pytest_collection_finish(session: pytest.Session) -> None:
    if grouped(session.config) and any("@" not in item.nodeid for item in session.items):
        pytest.exit("This pytest-xdist does not read the groups of tests: each process would start every server.")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Function, nextitem: pytest.Function | None) -> Iterator[Any]:
    """Shared servers end with their group: one that nobody asks anything still takes a fifth of a CPU."""
    result = yield
    pool = item.config.stash.get(RUNNING, None)
    if pool and grouped(item.config) and nextitem and group_of(nextitem) != group_of(item):
        pool.stop()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    """Say with a failed test where the logs of its servers are."""
    report = yield
    if report.failed:
        used = [value for value in getattr(item, "funcargs", {}).values() if isinstance(value, Server)]
        report.sections += [(f"Log of the server at {server.url}", str(server.log)) for server in used]
    return report
