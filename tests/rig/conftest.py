# SPDX-License-Identifier: Apache-2.0
"""The servers that tests on the rig share, each started when the first test asks for it.

``stock``, ``stock_inline``, ``migrated``, ``migrated_inline`` and ``scripted(kind, variant)`` are shared by many
tests, so a test must leave them as it found them. One that kills or stalls a server takes a ``fresh_server``.
What a file does not use is frozen meanwhile, so tests run in one process, file by file.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import speaking
from offline import Offline

from vllm_omni_rig.preloaded import Interpreters
from vllm_omni_rig.server import Server, start

MIGRATED = Path(__file__).parents[2] / "build" / "migrated"

Start = Callable[..., Server]


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
        """The one server of that kind, started now if there is none yet."""
        key = (variant, stages, scripted)
        if key not in self._shared:
            self._shared[key] = self.start(variant, stages, scripted=scripted)
        self._shared[key].resume()
        return self._shared[key]

    def pause_shared(self) -> None:
        """Freeze the shared servers until they are asked for again."""
        for server in self._shared.values():
            server.pause()

    def stop(self) -> None:
        """Stop all."""
        if self._started:
            with ThreadPoolExecutor(len(self._started)) as executor:
                list(executor.map(Server.stop, self._started))


RUNNING = pytest.StashKey[Servers]()


@pytest.fixture(scope="session", autouse=True)
def interpreters() -> Iterator[None]:
    """The servers of tests are forks: most of a start is imports."""
    with Interpreters():
        yield


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


@pytest.fixture(scope="module")
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[Any]:
    """Freeze the shared servers at the end of a file; the fixtures of the next one let go on what it uses."""
    result = yield
    if nextitem and nextitem.path != item.path and RUNNING in item.config.stash:
        item.config.stash[RUNNING].pause_shared()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    """Say with a failed test where the logs of its servers are."""
    report = yield
    if report.failed:
        used = [value for value in getattr(item, "funcargs", {}).values() if isinstance(value, Server)]
        report.sections += [(f"Log of the server at {server.url}", str(server.log)) for server in used]
    return report
