# SPDX-License-Identifier: Apache-2.0
"""Rollout sessions, sleep and wake-up, profiling, and routes that need the only API worker."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import unavailable
from calls import delete, form
from cases import Case, now, was
from contract import client_error, verify, verify_client
from support import Answer, Call, Seen, get, post, seen, send
from video_calls import content, new_session, step, video

from vllm_omni_rig.server import Server

Start = Callable[..., Server]

SCRIPT = Path(__file__).with_name("controlled.py")
MIGRATED = Path(__file__).parents[2] / "build" / "migrated"

STEP_ERROR = "error:code,committed_step_id,message,step_id"
MISSING = now(404, "NotFoundError")
GONE = now(410, "Gone")
INTERNAL = now(500, "InternalServerError")
TIMEOUT = now(504, "GatewayTimeoutError")
NO_WORKER_SHARES_IT = now(503, "ServiceUnavailableError")


def wrong(parameter: str) -> Seen:
    return now(400, "BadRequestError", parameter)


@pytest.fixture(scope="module")
def stock(scripted: Start) -> Server:
    return scripted("video", "stock")


@pytest.fixture(scope="module")
def migrated(scripted: Start) -> Server:
    return scripted("video", "migrated")


# fmt: off
REQUESTS = (
    Case("model that is not served", post("/v1/realtime/sessions", {"model": "nope"}),
         was(400, "Bad Request"), MISSING, "M01"),
    Case("step without its fields", post("/v1/realtime/sessions/x/step", {}),
         was(400, "Bad Request", "body.step_id"), now(400, "Bad Request", "body.step_id")),
    Case("step of an unknown session", step("x"), was(404, shape=STEP_ERROR), MISSING),
    Case("reset of an unknown session", post("/v1/realtime/sessions/x/reset", {}), was(404, "Not Found"), MISSING),
    Case("close of an unknown session", post("/v1/realtime/sessions/x/close", {}), was(404, "Not Found"), MISSING),
    Case("status of an unknown session", get("/v1/realtime/sessions/x/status"), was(404, "Not Found"), MISSING),
    Case("sleep of stages that are no list", post("/v1/omni/sleep", {"stage_ids": "x"}),
         was(400, "Bad Request", "body.stage_ids"), now(400, "Bad Request", "body.stage_ids")),
    Case("wake-up of stages that are no list", post("/v1/omni/wakeup", {"stage_ids": "x"}),
         was(400, "Bad Request", "body.stage_ids"), now(400, "Bad Request", "body.stage_ids")),
)
"""Wrong requests that need no session."""

STEPS = (
    Case("inference fails", step("", prompt="FAULT:value"), was(200), INTERNAL),
    Case("a guardrail", step("", prompt="FAULT:guard"),
         was(400, shape=STEP_ERROR), now(400, "GuardrailViolationError")),
    Case("a dead stage", step("", prompt="FAULT:deadstage"), was(200), INTERNAL),
    Case("a raw ValueError", step("", prompt="FAULT:raise=ValueError@front"), was(400, shape=STEP_ERROR), INTERNAL),
    Case("a client's mistake", step("", prompt="FAULT:raise=VLLMValidationError@front"), was(200), wrong("size")),
    Case("a stage that is not there", step("", prompt="FAULT:raise=OmniServiceUnavailableError@front"),
         was(200), now(503, "ServiceUnavailableError")),
    Case("no video", step("", prompt="FAULT:output=none"), was(200), INTERNAL),
    Case("too few joints", step("", joint_positions=[1.0]), was(400, shape=STEP_ERROR), wrong("joint_positions")),
    Case("two grippers", step("", gripper_position=[1.0, 2.0]), was(400, shape=STEP_ERROR), wrong("gripper_position")),
    Case("a seed that is no number", step("", extra={"seed": "rejected-value-4711"}),
         was(400, shape=STEP_ERROR), wrong("observation.extra.seed")),
    Case("a seed that is a list", step("", extra={"seed": []}), was(200), wrong("observation.extra.seed")),
    Case("a step too far", step("", 7), was(400, shape=STEP_ERROR), wrong("step_id")),
)
"""Steps that fail in a new session; on stock mostly an answer like any other."""
# fmt: on


def in_session(call: Call, session: str) -> Call:
    return Call(call.method, call.path.replace("//step", f"/{session}/step"), json=call.json)


@pytest.mark.parametrize("case", REQUESTS, ids=str)
def test_stock(stock: Server, case: Case) -> None:
    """Baseline."""
    assert seen(send(stock.url, case.call)) == case.was


@pytest.mark.parametrize("case", REQUESTS, ids=str)
def test_migrated(migrated: Server, case: Case) -> None:
    answer = send(migrated.url, case.call)
    verify(answer, case.now)
    assert answer.counted == (case.now.counted,)
    verify_client(client_error(migrated.url, case.call), case.now)


@pytest.mark.parametrize("case", STEPS, ids=str)
def test_a_failing_step_on_stock(stock: Server, case: Case) -> None:
    """Baseline: the error is in a successful answer, or in a shape of its own whose code is a word."""
    answer = send(stock.url, in_session(case.call, new_session(stock.url)))
    assert seen(answer) == case.was
    assert isinstance(answer.error["code"], str)


@pytest.mark.parametrize("case", STEPS, ids=str)
def test_a_failing_step(migrated: Server, case: Case) -> None:
    """The status is the error's code, nothing is committed, and the session goes on."""
    session = new_session(migrated.url)
    answer = send(migrated.url, in_session(case.call, session))
    verify(answer, case.now)
    assert answer.counted == (case.now.counted,)
    assert "rejected-value-4711" not in answer.text
    status = send(migrated.url, get(f"/v1/realtime/sessions/{session}/status")).body
    assert status["committed_step_id"] == -1
    assert send(migrated.url, step(session)).status == 200


def test_a_step_that_is_committed_already(migrated: Server) -> None:
    session = new_session(migrated.url)
    assert send(migrated.url, step(session)).body["error"] is None
    answer = send(migrated.url, step(session))
    verify(answer, wrong("step_id"))
    assert "highest committed step is 0" in answer.error["message"]


def test_a_failed_step_names_its_stage(migrated: Server) -> None:
    answer = send(migrated.url, step(new_session(migrated.url), prompt="FAULT:value"))
    assert answer.error["error_stage_id"] == 0


@pytest.fixture(scope="module")
def closed(migrated: Server) -> str:
    session = new_session(migrated.url)
    assert send(migrated.url, post(f"/v1/realtime/sessions/{session}/close", {})).body["closed"] is True
    return session


@pytest.mark.parametrize("what", ["step", "reset"])
def test_a_closed_session_is_gone(migrated: Server, closed: str, what: str) -> None:
    """410 stays, and is no 404: the session was there."""
    call = step(closed) if what == "step" else post(f"/v1/realtime/sessions/{closed}/reset", {})
    verify(send(migrated.url, call), GONE)


def test_a_closed_session_shows_its_status_and_can_be_closed_again(migrated: Server, closed: str) -> None:
    assert send(migrated.url, get(f"/v1/realtime/sessions/{closed}/status")).body["closed"] is True
    assert send(migrated.url, post(f"/v1/realtime/sessions/{closed}/close", {})).body["closed"] is True


# ---- sleep and wake-up ---------------------------------------------------------------------------------------------


def sleep(*stages: int, level: int = 1) -> Call:
    return post("/v1/omni/sleep", {"stage_ids": list(stages), "level": level})


WAKE_UP = post("/v1/omni/wakeup", {"stage_ids": [0]})


@pytest.mark.parametrize("variant", ["stock", "migrated"])
def test_a_sleep_and_the_wake_up_after_it(scripted: Start, variant: str) -> None:
    """As on stock: both succeed, with what the stage acknowledged, and requests are answered afterwards."""
    url = scripted("video", variant).url
    for call in (sleep(0, level=0), WAKE_UP):
        answer = send(url, call)
        assert (answer.status, answer.counted, answer.body["status"]) == (200, ("2xx",), "SUCCESS")
        assert [(ack["status"], ack["stage_id"]) for ack in answer.body["acks"]] == [("SUCCESS", 0)]
    assert send(url, video()).status == 200


def test_a_sleep_that_the_engine_does_not_answer(migrated: Server) -> None:
    """504, once, and requests are admitted as before (the scripted engine does not answer)."""
    answer = send(migrated.url, sleep(0))
    verify(answer, TIMEOUT)
    assert answer.counted == ("5xx",)
    verify_client(client_error(migrated.url, sleep(0), retries=2), TIMEOUT)
    assert send(migrated.url, video()).status == 200


def test_a_sleep_of_no_stage(migrated: Server) -> None:
    """Nothing sleeps, so requests are admitted as before; on stock every later one waits for ever."""
    assert send(migrated.url, sleep()).status == 200
    assert send(migrated.url, video()).status == 200


def test_a_sleep_of_a_stage_that_is_not_there(migrated: Server) -> None:
    verify(send(migrated.url, sleep(99)), wrong("stage_ids"))
    assert send(migrated.url, video()).status == 200


@pytest.mark.parametrize("stage", [0, 99])
def test_on_stock_every_later_request_waits_for_ever(fresh_server: Start, stage: int) -> None:
    """Baseline: the server has stopped admitting requests, and nobody knows that it must be woken."""
    import httpx

    server = fresh_server("stock", scripted="video")
    assert send(server.url, sleep(stage)).status == (400 if stage else 500)
    with pytest.raises(httpx.TimeoutException):
        send(server.url, video(), deadline_s=3)


def test_a_wake_up_of_what_is_awake(migrated: Server) -> None:
    assert send(migrated.url, WAKE_UP).body["status"] == "SKIPPED"


# ---- what no pipeline of the rig turns on --------------------------------------------------------------------------

PROFILES: Mapping[str, Call] = {"start": post("/start_profile", {}), "stop": post("/stop_profile", {"stages": [0]})}

ADAPTER = {"lora_name": "a", "lora_path": "/srv/private"}
ADAPTERS: Mapping[str, Call] = {
    "load": post("/v1/load_lora_adapter", ADAPTER),
    "unload": post("/v1/unload_lora_adapter", ADAPTER),
}

ONE_WORKER_ONLY: Mapping[str, Call] = {
    "new job": form("/v1/videos", prompt="x", size="64x64"),
    "jobs": get("/v1/videos"),
    "job": get("/v1/videos/x"),
    "content": content("x"),
    "delete": delete("/v1/videos/x"),
    "sleep": sleep(0),
    "wake-up": WAKE_UP,
    "new voice": form("/v1/audio/voices", name="x", consent="y", speaker_embedding="[1.0]"),
    "voice deletion": delete("/v1/audio/voices/x"),
}


def controlled(tree: Path | None, log: Path) -> Iterator[Server]:
    with unavailable.running(tree, log, SCRIPT, "video") as server:
        yield server


@pytest.fixture(scope="module")
def special(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from controlled(MIGRATED, tmp_path_factory.mktemp("log") / "migrated.log")


@pytest.fixture(scope="module")
def special_stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Answer]]:
    """Stock's answers; its server is stopped before the migrated one starts."""
    with unavailable.running(None, tmp_path_factory.mktemp("log") / "stock.log", SCRIPT, "video") as server:
        calls = PROFILES | ADAPTERS | ONE_WORKER_ONLY | {"slow video": video("FAULT:sleep=3")}
        yield {name: send(server.url, call) for name, call in calls.items()}


def test_on_stock(special_stock: Mapping[str, Answer]) -> None:
    """Baseline."""
    statuses = {name: answer.status for name, answer in special_stock.items()}
    expected = {**dict.fromkeys(PROFILES, 500), **dict.fromkeys(ADAPTERS, 501), **dict.fromkeys(ONE_WORKER_ONLY, 409)}
    assert statuses == expected | {"slow video": 504}
    assert "x-should-retry" not in special_stock["load"].headers
    assert "sk-rig0canary" in special_stock["start"].text


@pytest.mark.parametrize("route", PROFILES)
def test_a_profiler_that_the_engine_does_not_answer_for(special: Server, route: str) -> None:
    answer = send(special.url, PROFILES[route])
    verify(answer, TIMEOUT)
    assert answer.counted == ("5xx",)


@pytest.mark.parametrize("route", ["/start_profile", "/stop_profile"])
def test_a_profile_of_a_stage_that_is_not_there(special: Server, route: str) -> None:
    """Stock ignores it: its orchestrator warns, and the answer is a success."""
    verify(send(special.url, post(route, {"stages": [0, 99]})), wrong("stages"))


@pytest.mark.parametrize("route", ADAPTERS)
def test_an_adapter_on_a_server_of_one_diffusion_model(special: Server, route: str) -> None:
    """The route is vLLM's own, and keeps its 501; the official client does not repeat it any more."""
    call = ADAPTERS[route]
    verify(send(special.url, call), now(501, "NotImplementedError"))
    verify_client(client_error(special.url, call, retries=2), now(501, "NotImplementedError"))


@pytest.mark.parametrize("route", ONE_WORKER_ONLY)
def test_what_one_of_several_workers_cannot_do(special: Server, route: str) -> None:
    """No job is in a wrong state: this deployment will never do it, and no client need repeat it."""
    call = ONE_WORKER_ONLY[route]
    verify(send(special.url, call), NO_WORKER_SHARES_IT, permanent=True)
    verify_client(client_error(special.url, call, retries=2), NO_WORKER_SHARES_IT)


def test_the_deadline_of_a_video_that_is_waited_for(special: Server) -> None:
    """The only 504 of that route; an engine's own timeout is 500 (test_contract_videos.py)."""
    answer = send(special.url, video("FAULT:sleep=3"))
    verify(answer, TIMEOUT)
    assert "within 1 s" in answer.error["message"]
    assert send(special.url, video()).status == 200


def test_sessions_that_are_all_in_use(special: Server) -> None:
    """Another client that closes one helps, so that the official client tries again."""
    create = post("/v1/realtime/sessions", {"model": "tiny"})
    for _ in range(64):
        assert send(special.url, create).status == 200
    verify(send(special.url, create), now(503, "ServiceUnavailableError"))
