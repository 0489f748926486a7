# SPDX-License-Identifier: Apache-2.0
"""The server as the rig starts and stops it."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from vllm_omni_rig.guard import shared_memory_of
from vllm_omni_rig.server import RigError, Server, start

COMMAND = str(Path(sysconfig.get_path("scripts"), "vllm-omni-rig"))
INSTALLED = Path(sysconfig.get_path("purelib"), "vllm_omni")


def image(server: Server, prompt: str) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/images/generations", json={"prompt": prompt, "size": "64x64"}, timeout=60)


def gone(processes: list[psutil.Process], deadline_s: float) -> bool:
    """Whether all of ``processes`` end before the deadline; a zombie that nobody reaps counts as ended."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        with contextlib.suppress(psutil.NoSuchProcess):
            processes = [each for each in processes if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
        if not processes:
            return True
        time.sleep(0.1)
    return False


class Serve:
    """``vllm-omni-rig serve`` as a process."""

    def __init__(self, *arguments: str, log: Path) -> None:
        self.log = log
        self.temporary = Path(tempfile.mkdtemp(prefix="rig-"))  # pytest's is too long for the path of a socket
        self.process = subprocess.Popen(
            [COMMAND, "serve", "--log", str(log), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"TMPDIR": str(self.temporary)},
            text=True,
        )

    def first_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def server_processes(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def wait(self, deadline_s: float) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=deadline_s)
        return self.process.returncode, errors


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Serve]]:
    started: list[Serve] = []

    def start_one(*arguments: str) -> Serve:
        started.append(Serve(*arguments, log=tmp_path / "server.log"))
        return started[-1]

    yield start_one
    for each in started:
        each.process.kill()
        each.process.wait()
        shutil.rmtree(each.temporary, ignore_errors=True)


# What is refused


def test_a_tree_without_vllm_omni_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="holds no vllm_omni package"):
        start(2, tree=tmp_path)


def test_a_server_that_runs_other_code_than_the_trees_is_refused(tmp_path: Path) -> None:
    """A tree whose package hands over to the installed one: nothing would be tested, and nothing would show it."""
    package = tmp_path / "vllm_omni"
    package.mkdir()
    package.joinpath("__init__.py").write_text(
        f"__file__ = {str(INSTALLED / '__init__.py')!r}\n"
        f"__path__ = [{str(INSTALLED)!r}]\n"
        "exec(compile(open(__file__).read(), __file__, 'exec'))\n"
    )
    with pytest.raises(RigError, match="did not run the code of"):
        start(1, tree=tmp_path, scripted="diffusion", log=tmp_path / "server.log")


# Start and stop


def test_serve_prints_ready_and_stops_at_sigterm_leaving_nothing(serve: Callable[..., Serve]) -> None:
    server = serve("--stages", "2")
    ready, _, url = server.first_line().partition(" ")
    assert ready == "READY"
    assert httpx.get(f"{url}/health", timeout=30).status_code == 200
    processes = server.server_processes()
    assert len(processes) >= 4
    shared = shared_memory_of(processes)
    [run] = server.temporary.iterdir()
    server.process.send_signal(signal.SIGTERM)
    code, errors = server.wait(40)
    assert code == 0
    assert " s  " in errors
    assert gone(processes, 1)
    assert [file for file in (run, *shared) if file.exists()] == []


def test_nothing_stays_when_the_supervisor_is_killed(serve: Callable[..., Serve]) -> None:
    server = serve("--stages", "2")
    assert server.first_line().startswith("READY")
    processes = server.server_processes()
    server.process.kill()
    assert gone(processes, 40)


def test_nothing_stays_when_the_guard_is_killed(fresh_server: Callable[..., Server]) -> None:
    server = fresh_server()
    guard, *others = server.processes()
    guard.kill()
    assert gone(others, 40)


def test_serve_stops_at_sigint_while_the_server_is_starting(serve: Callable[..., Serve]) -> None:
    server = serve("--stages", "2")
    deadline = time.monotonic() + 60
    while "Available plugins" not in (server.log.read_text() if server.log.exists() else ""):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    processes = server.server_processes()
    server.process.send_signal(signal.SIGINT)
    assert server.wait(40)[0] == 0
    assert gone(processes, 1)


def test_serve_says_so_when_the_server_ends_by_itself(serve: Callable[..., Serve]) -> None:
    server = serve("--scripted", "diffusion")
    url = server.first_line().removeprefix("READY ")
    with contextlib.suppress(httpx.HTTPError):
        httpx.post(f"{url}/v1/images/generations", json={"prompt": "FAULT:exit=9@front"}, timeout=30)
    code, errors = server.wait(40)
    assert code == 3
    assert f"The server ended by itself, with exit code 9; its log is {server.log}" in errors


def test_a_port_in_use_is_one_sentence_before_anything_starts(serve: Callable[..., Serve]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        server = serve("--port", str(port))
        code, errors = server.wait(20)
    assert code == 2
    assert errors.startswith(f"Port {port} cannot be used")
    assert errors.count("\n") == 1
    assert not server.log.exists()


def test_a_server_that_does_not_come_up_shows_the_end_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with pytest.raises(RigError) as caught:
        start(1, arguments=["--no-such-option"], log=log)
    assert "ended with exit code 2 before it answered" in str(caught.value)
    assert f"The end of {log}" in str(caught.value)
    assert "--no-such-option" in str(caught.value)


def test_stopping_twice_is_stopping_once(fresh_server: Callable[..., Server]) -> None:
    server = fresh_server(scripted="diffusion")
    server.stop()
    server.stop()
    assert not server.alive()


# What must not change


def test_the_rig_changes_nothing_in_a_process_that_it_did_not_start() -> None:
    code = "import vllm_omni_rig.plugin as plugin; plugin.register(); print(plugin.platform())"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == "None\n"


def test_the_command_is_installed() -> None:
    assert shutil.which("vllm-omni-rig", path=str(Path(COMMAND).parent))


# What runs. Last, since these servers stay until the end of the file and slow down every start.


def test_two_stages_are_two_processes_beside_the_api_process(stock: Server) -> None:
    stages = stock.stage_pids()
    assert stages.keys() == {0, 1}
    assert len({stock.process, *stages.values()}) == 3
    for pid in stages.values():
        assert stock.process in [parent.pid for parent in psutil.Process(pid).parents()]


def test_one_stage_runs_inside_the_api_process(stock_inline: Server) -> None:
    assert stock_inline.stage_pids() == {0: stock_inline.process}


@pytest.mark.parametrize("fixture", ["stock", "stock_inline"])
@pytest.mark.usefixtures("stock", "stock_inline")
def test_the_stock_server_answers_with_an_image(fixture: str, request: pytest.FixtureRequest) -> None:
    response = image(request.getfixturevalue(fixture), "a cat")
    assert (response.status_code, len(response.json()["data"])) == (200, 1)


@pytest.mark.parametrize("kind", ["diffusion", "multi"])
def test_a_scripted_server_answers_with_an_image(kind: str, scripted: Callable[..., Server]) -> None:
    response = image(scripted(kind), "a cat")
    assert (response.status_code, len(response.json()["data"])) == (200, 1)


def test_the_scripted_video_server_answers_with_a_video(scripted: Callable[..., Server]) -> None:
    response = httpx.post(f"{scripted('video').url}/v1/videos/sync", data={"prompt": "a cat"}, timeout=60)
    assert (response.status_code, response.headers["content-type"]) == (200, "video/mp4")


def test_a_paused_server_runs_nothing_and_goes_on_when_it_is_resumed(stock: Server) -> None:
    watching, *others = stock.processes()
    stock.pause()
    try:
        give_up = time.monotonic() + 30
        while (states := {process.status() for process in others}) != {psutil.STATUS_STOPPED}:
            assert time.monotonic() < give_up, states
            time.sleep(0.05)
        assert watching.status() != psutil.STATUS_STOPPED
    finally:
        stock.resume()
    assert image(stock, "a cat").status_code == 200


def test_the_model_is_called_tiny(stock: Server) -> None:
    models = httpx.get(f"{stock.url}/v1/models", timeout=30).json()["data"]
    assert [model["id"] for model in models] == ["tiny"]


def test_a_server_listens_on_the_loopback_interface_only(stock: Server) -> None:
    addresses = {
        connection.laddr.ip
        for connection in psutil.Process(stock.process).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == stock.port
    }
    assert addresses == {"127.0.0.1"}


def test_requests_are_counted_by_status(stock: Server) -> None:
    before = stock.requests_total()
    assert image(stock, "FAULT:raise=ValueError@front").status_code == 400
    change = stock.requests_total() - before
    assert change["POST", "/v1/images/generations", "4xx"] == 1


# Which code runs


def test_the_stock_server_runs_the_installed_files(stock: Server) -> None:
    assert set(stock.code_paths().values()) == {INSTALLED}
    assert len(stock.code_paths()) == 3


def test_the_migrated_server_runs_the_trees_files_in_every_process(migrated: Server) -> None:
    tree = Path(__file__).parents[2] / "build" / "migrated" / "vllm_omni"
    assert set(migrated.code_paths().values()) == {tree}
    assert len(migrated.code_paths()) == 3
