# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes a migrated server under faults, and the alerts of `ops/` fire.

The rules are those of the file, with windows of seconds instead of minutes.
"""

import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread

import httpx
import pytest
import yaml
from calls import chat, images
from support import Call

from vllm_omni_rig.server import Server

RULES = Path(__file__).parents[2] / "ops" / "prometheus" / "rules.yml"
READY_S = 30.0
FIRING_S = 60.0
EXPECTED = {"OmniServerErrors", "OmniClientErrors", "OmniStageFails"}


def quick(rules: str) -> str:
    rules = re.sub(r"\[5m\]", "[20s]", rules).replace("offset 5m", "offset 20s")
    return re.sub(r"for: \d+m", "for: 1s", rules)


@pytest.fixture
def prometheus(migrated: Server, tmp_path: Path) -> Iterator[str]:
    """The address of a Prometheus that scrapes the server once a second."""
    (tmp_path / "rules.yml").write_text(quick(RULES.read_text()))
    target = migrated.url.removeprefix("http://")
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [{"job_name": "omni", "static_configs": [{"targets": [target]}]}],
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    with httpx.Client() as client, (tmp_path / "log").open("w") as log:
        port = _free_port()
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={tmp_path / 'prometheus.yml'}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            assert _until(lambda: _ready(client, url), READY_S), (tmp_path / "log").read_text()
            yield url
        finally:
            process.terminate()
            process.wait(timeout=30)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _ready(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(f"{url}/-/ready").status_code == 200
    except httpx.TransportError:
        return False


def _until(done: Callable[[], bool], deadline_s: float) -> bool:
    give_up = time.monotonic() + deadline_s
    while time.monotonic() < give_up:
        if done():
            return True
        time.sleep(0.5)
    return False


def _load(url: str, calls: list[Call], stop: Event) -> None:
    with httpx.Client(timeout=20) as client:
        while not stop.is_set():
            for call in calls:
                client.request(call.method, url + call.path, **call.arguments())


def test_the_alerts_fire_on_a_server_under_faults(migrated: Server, prometheus: str) -> None:
    stop = Event()
    calls = [images("FAULT:value"), chat("hi", temperature=-3), images("x", model="nope")]
    load = Thread(target=_load, args=(migrated.url, calls, stop))
    load.start()
    firing: set[str] = set()

    def fired() -> bool:
        alerts = httpx.get(f"{prometheus}/api/v1/alerts").json()["data"]["alerts"]
        firing.update(alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing")
        return firing >= EXPECTED

    try:
        assert _until(fired, FIRING_S), f"only {sorted(firing)} of {sorted(EXPECTED)} fire"
    finally:
        stop.set()
        load.join()
    assert "OmniCountersDisagree" not in firing
    stages = httpx.get(f"{prometheus}/api/v1/query", params={"query": "omni:server_errors_of_stage:rate5m"}).json()
    assert {result["metric"]["stage_id"] for result in stages["data"]["result"]} == {"1"}
