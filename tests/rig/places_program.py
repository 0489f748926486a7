# SPDX-License-Identifier: Apache-2.0
"""Places of vLLM-Omni that the rig's servers do not reach, each called by itself with a failure; prints what comes out.

Several worker processes, request batches, sessions, interactions and membership need a GPU or another deployment. Here
their own code runs, with stand-ins for what they are given.
"""

import asyncio
import concurrent.futures
import json
import os
import queue
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from vllm_omni_errors.stage_deadline import LIMIT
from vllm_omni_rig.failures import CANARIES, make

REFUSED = "GuardrailViolationError"
UNKNOWN = "RuntimeError"
PASSED = "passed"
HANG_S = 5.0
LATE = "late: " + " ".join(CANARIES.values())
TRACEBACK = "Traceback (most recent call last): ..."


def refused() -> BaseException:
    return make(REFUSED, "stage1")


def record_of(exc: BaseException) -> Any:
    """What a worker of this tree puts under ``error_details``; nothing in stock."""
    try:
        from vllm_omni.diffusion.data import DiffusionOutput

        return DiffusionOutput.from_exception(exc).error_details
    except AttributeError:
        return None


def raised(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as exc:
        return exc


def status_of_ranks() -> Any:
    """A call that failed on one of two ranks."""
    from vllm_omni.diffusion.executor.multiproc_executor import (
        DIFFUSION_RPC_RESULT_ENVELOPE,
        MultiprocDiffusionExecutor,
    )

    exc = refused()
    failed = {"rank": 1, "ok": False, "error": str(exc), "error_type": REFUSED, "traceback": TRACEBACK}
    answer = {
        "type": DIFFUSION_RPC_RESULT_ENVELOPE,
        "method": "load",
        "rank_statuses": [{"rank": 0, "ok": True}, failed | {"error_details": record_of(exc)}],
    }
    return raised(lambda: MultiprocDiffusionExecutor._unwrap_rpc_result_envelope(answer))


def answer_of_a_worker() -> Any:
    """A call that failed in a worker process."""
    from vllm_omni.diffusion.executor.multiproc_executor import MultiprocDiffusionExecutor

    exc = refused()
    answer = {"status": "error", "error": str(exc), "error_details": record_of(exc)}
    return raised(lambda: MultiprocDiffusionExecutor._raise_for_rpc_error_dict(answer))


def call_of_a_rank() -> Any:
    """A call that failed in a worker process whose ranks all report, as its caller gets it."""
    from vllm_omni.diffusion.executor.multiproc_executor import MultiprocDiffusionExecutor
    from vllm_omni.diffusion.worker.diffusion_worker import WorkerProc

    def fail(*_: Any, **__: Any) -> Any:
        raise refused()

    worker = WorkerProc.__new__(WorkerProc)
    worker.__dict__.update(gpu_id=0, worker=SimpleNamespace(execute_method=fail), result_mq=object())
    worker._gather_rpc_rank_statuses = lambda status: [status]  # type: ignore[method-assign]
    call = {"method": "load", "output_rank": 0, "exec_all_ranks": True, "collect_rank_status": True}
    answer, _ = worker._execute_rpc(call)
    return raised(lambda: MultiprocDiffusionExecutor._handle_rpc_response(answer))


def request_of_several_processes() -> Any:
    """A request that failed in the executor of several processes."""
    from vllm_omni.diffusion.executor.multiproc_executor import MultiprocDiffusionExecutor

    def fail(*_: Any, **__: Any) -> Any:
        raise refused()

    executor = MultiprocDiffusionExecutor.__new__(MultiprocDiffusionExecutor)
    executor.__dict__.update(od_config=SimpleNamespace(parallel_config=None), collective_rpc=fail, _closed=True)
    executor._ensure_open = lambda: None  # type: ignore[method-assign]
    request = SimpleNamespace(request_id="r", req=SimpleNamespace(request_id="r"), diffusion_kv_metadata=None)
    scheduled = SimpleNamespace(scheduled_new_reqs=[request], kv_prefetch_job=None)
    return executor.execute_request(scheduled).get_request_output("r").result


def fallback_of_the_runner() -> Any:
    """A request that failed outside of step mode."""
    from vllm_omni.diffusion.worker.diffusion_model_runner import DiffusionModelRunner

    def fail(*_: Any, **__: Any) -> Any:
        raise refused()

    request = SimpleNamespace(
        request_id="r",
        req=SimpleNamespace(sampling_params=SimpleNamespace(step_index=0)),
        diffusion_kv_metadata=None,
    )
    scheduled = SimpleNamespace(
        scheduled_cached_reqs=SimpleNamespace(request_ids=[]), scheduled_new_reqs=[request], kv_prefetch_job=None
    )
    outputs = DiffusionModelRunner._execute_non_step_requests(SimpleNamespace(execute_model=fail), scheduled)
    return outputs.get_request_output("r").result


def batch_of_requests() -> Any:
    """A batch that failed, split into its requests."""
    from vllm_omni.diffusion.data import DiffusionOutput
    from vllm_omni.diffusion.worker.request_batch import split_diffusion_output_by_request

    whole = DiffusionOutput.from_exception(refused())
    return split_diffusion_output_by_request(whole, SimpleNamespace(num_reqs=2), num_outputs_per_prompt=1)[1]


class Sink:
    """A queue that keeps what is put into it."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    async def put(self, item: Any) -> None:
        self.items.append(item)


def replica_that_disappeared() -> Any:
    """A replica leaves while it serves a request."""
    from vllm_omni.engine.membership_controller import MembershipController

    pool = SimpleNamespace(
        get_replica_id_by_addr=lambda _: 0, get_client_by_addr=lambda _: None, invalidate_addr=lambda _: ["r"]
    )
    sink = Sink()
    controller = SimpleNamespace(
        _pool_for_stage_id=lambda _: pool,
        _output_queue=sink,
        _cleanup_callback=None,
        _detach_replica=lambda *_: None,
        _replica_removed_callback=None,
    )
    asyncio.run(MembershipController.handle_unregister(controller, 1, "address"))
    return sink.items[0]


def interaction(state: Any) -> Any:
    from vllm_omni.engine.orchestrator import Orchestrator

    async def submit(*_: Any) -> None:
        raise refused()

    sink = Sink()
    orchestrator = SimpleNamespace(
        request_states={"r": state} if state else {},
        output_async_queue=sink,
        stage_pools=[SimpleNamespace(submit_interaction=submit)],
    )
    message = SimpleNamespace(request_id="r", interaction={"event_id": "e"})
    asyncio.run(Orchestrator._handle_interaction(orchestrator, message))
    return sink.items[0]


def interaction_without_request() -> Any:
    return interaction(None)


def interaction_that_is_refused() -> Any:
    return interaction(object())


def session_request() -> Any:
    """The scheduler gives up a request of a session."""
    from vllm.v1.engine import FinishReason
    from vllm_omni.engine.orchestrator import Orchestrator

    sink = Sink()
    finished = SimpleNamespace(
        finish_reason=FinishReason.ERROR, is_segment_finished=False, stop_reason=str(make(UNKNOWN, "stage1"))
    )
    state = SimpleNamespace(session_owned=True, request_id="r")
    orchestrator = SimpleNamespace(output_async_queue=sink)
    asyncio.run(Orchestrator._report_duplex_session_request_error(orchestrator, 1, 0, finished, state))
    return sink.items[0]


def call_into_a_dead_engine() -> Any:
    """A control call is answered by the engine's end."""
    from vllm_omni.engine.messages import ErrorMessage
    from vllm_omni.engine.rpc_result_router import CorrelatedRpcClient

    died = make("OmniEngineDeadError", "stage1")
    message = (
        ErrorMessage.from_exception(died, stage_id=1)
        if hasattr(ErrorMessage, "from_exception")
        else ErrorMessage(error=str(died), fatal=True, stage_id=1)
    )
    requests: queue.Queue[Any] = queue.Queue()
    results: queue.Queue[Any] = queue.Queue()
    client = CorrelatedRpcClient(requests, results)
    results.put(message)
    return raised(lambda: client.execute(("a", "b"), object(), timeout=5, timeout_message="late"))


def message_that_cannot_be_decoded() -> Any:
    """A stage's answer to a request is broken."""
    import msgspec
    import zmq
    from vllm_omni.diffusion.stage_diffusion_client import StageDiffusionClient
    from vllm_omni.distributed.omni_connectors.utils.serialization import OmniMsgpackDecoder

    raw = msgspec.msgpack.encode({"type": "result", "output": {"request_id": "r", "images": msgspec.Raw(b"\xc1")}})
    frames = [raw]

    def receive(_: int) -> bytes:
        if not frames:
            raise zmq.Again
        return frames.pop()

    found: queue.Queue[Any] = queue.Queue()
    client = SimpleNamespace(
        _response_socket=SimpleNamespace(recv=receive), _decoder=OmniMsgpackDecoder(), _output_queue=found, stage_id=1
    )
    return raised(lambda: (StageDiffusionClient._drain_responses(client), found.get_nowait())[1])


def abort_at_the_death_of_a_stage() -> Any:
    """The stage's process is gone, and nobody has noticed yet."""
    import zmq
    from vllm_omni.diffusion.stage_diffusion_client import StageDiffusionClient
    from vllm_omni.distributed.omni_connectors.utils.serialization import OmniMsgpackEncoder

    def refuse(_: bytes) -> None:
        raise zmq.Again

    socket = SimpleNamespace(send=refuse)
    client = SimpleNamespace(_request_socket=socket, _encoder=OmniMsgpackEncoder(), stage_id=1)
    return raised(lambda: asyncio.run(StageDiffusionClient.abort_requests_async(client, ["r"])))


def request_at_the_end_of_the_engine() -> Any:
    """A request comes when the engine's death has been told to all others, and its thread has not ended yet."""
    from vllm_omni.entrypoints.async_omni import AsyncOmni

    from vllm_omni_rig.scripted.engine import ScriptedEngine, Stage

    class Ending(ScriptedEngine):
        def is_alive(self) -> bool:
            return True

        async def add_request_async(self, **_: Any) -> None:
            self._die("the end")

    async def ask(omni: Any) -> Any:
        found: Any = None
        for _ in range(2):
            try:
                async with asyncio.timeout(HANG_S):
                    async for _ in omni.generate(prompt="x", request_id="r"):
                        pass
            except Exception as exc:
                found = exc
            await omni.final_output_task
        return found

    engine = Ending([Stage(0, "diffusion", "image")])
    omni = type("Omni", (AsyncOmni,), {"_create_engine": lambda *_, **__: engine})(model=str(Path(__file__).parent))
    return asyncio.run(ask(omni))


def next_stage_parameters() -> Any:
    """Sampling parameters of a later language stage, which vLLM refuses."""
    from vllm import SamplingParams
    from vllm_omni.engine.orchestrator import OrchestratorBase

    def refuse(**_: Any) -> Any:
        raise ValueError("these parameters are wrong")

    orchestrator = SimpleNamespace(
        stage_pools=[None, SimpleNamespace()],
        _next_stage_input_is_tokens=lambda _: False,
        _get_stage_input_processor=lambda _: SimpleNamespace(process_inputs=refuse),
    )
    return raised(
        lambda: OrchestratorBase._build_next_stage_request(orchestrator, "r", 1, {"prompt": "x"}, SamplingParams())
    )


def pixels_of_several_replicas() -> Any:
    """A picture that breaks while it is read, which several replicas of a stage do early."""
    import io

    from PIL import Image
    from vllm_omni.engine.async_omni_engine import AsyncOmniEngine

    file = io.BytesIO()
    Image.effect_noise((64, 64), 9).save(file, "PNG")
    picture = Image.open(io.BytesIO(file.getvalue()[:200]))
    engine = SimpleNamespace(
        model="tiny", _resolve_mm_hasher_algorithm=lambda: "blake3", _iter_multimodal_items=lambda items: [items]
    )
    prompt = {"multi_modal_data": {"image": picture}}
    return raised(lambda: AsyncOmniEngine._ensure_stage_replica_mm_uuids(engine, prompt, stage_id=0, replica_id=0))


def settings_of_a_session() -> Any:
    """Settings that do not make a chat request; no route has this handler."""
    from vllm_omni.entrypoints.openai.video_stream_session import VideoStreamSession

    session = SimpleNamespace(sample_frames=list, has_audio=False, _config=SimpleNamespace(model=5))
    return raised(lambda: VideoStreamSession.build_chat_request(session, "x"))


def partly_asleep() -> Any:
    """A request while one of several diffusion stages sleeps."""
    from vllm_omni.entrypoints.async_omni import AsyncOmni

    async def nothing(*_: Any, **__: Any) -> None:
        pass

    class PartlyAsleep(AsyncOmni):  # type: ignore[misc]
        errored = False
        _paused = False
        _sleeping_tags = frozenset({"weights"})
        _abort_internal_requests = _release_generate_admission = nothing
        _record_request_failure_once = _log_summary_and_cleanup = lambda *_, **__: None

        def __init__(self) -> None:
            self._pause_cond = asyncio.Condition()

        def _get_unique_request_id(self, request_id: str) -> str:
            return request_id

    async def generate() -> Any:
        try:
            async for output in PartlyAsleep().generate("x", request_id="r"):
                return output
        except Exception as exc:
            return exc

    return asyncio.run(generate())


async def never(*_: Any, **__: Any) -> None:
    await asyncio.sleep(HANG_S)


def call_that_the_engine_does_not_answer() -> Any:
    """A control call from the API process."""
    from vllm_omni.engine.rpc_result_router import CorrelatedRpcClient

    client = CorrelatedRpcClient(queue.Queue(), queue.Queue())
    return raised(lambda: client.execute(("a", "b"), object(), timeout=0.01, timeout_message=LATE))


def call_that_workers_do_not_answer() -> Any:
    """A control call from a diffusion stage to its workers."""
    from vllm_omni.diffusion.diffusion_engine import DiffusionEngine

    task = SimpleNamespace(future=concurrent.futures.Future())
    engine = SimpleNamespace(_loop_started=True, _submit_rpc=lambda *_: task)
    return raised(lambda: DiffusionEngine.collective_rpc(engine, "load", timeout=0.01))


def awaited_call_that_workers_do_not_answer() -> Any:
    from vllm_omni.diffusion.diffusion_engine import DiffusionEngine

    async def started() -> None:
        """The loop runs."""

    task = SimpleNamespace(future=concurrent.futures.Future())
    engine = SimpleNamespace(_check_and_start_background_loop=started, _submit_rpc=lambda *_: task)
    return raised(lambda: asyncio.run(DiffusionEngine.async_collective_rpc(engine, "load", timeout=0.01)))


def call_that_a_stage_does_not_answer() -> Any:
    """A control call to the process of a diffusion stage."""
    from vllm_omni.diffusion.stage_diffusion_client import StageDiffusionClient
    from vllm_omni.distributed.omni_connectors.utils.serialization import OmniMsgpackEncoder

    alive = SimpleNamespace(proc=SimpleNamespace(is_alive=lambda: True, exitcode=None))
    client = SimpleNamespace(
        _encoder=OmniMsgpackEncoder(),
        _request_socket=SimpleNamespace(send=lambda _: None),
        _pending_rpcs=set(),
        _rpc_results={},
        _drain_responses=lambda: None,
        _proc_manager=alive,
        _engine_dead=False,
        _response_poller=SimpleNamespace(poll=lambda **_: asyncio.sleep(0.02)),
    )
    return raised(lambda: asyncio.run(StageDiffusionClient.collective_rpc_async(client, "load", timeout=0.01)))


def pause_that_waits_for_a_receive() -> Any:
    from vllm_omni.diffusion.worker.diffusion_worker import DiffusionWorker

    manager = SimpleNamespace(wait_prefetch=lambda **_: False)
    worker = SimpleNamespace(model_runner=SimpleNamespace(kv_transfer_manager=manager))
    return raised(lambda: DiffusionWorker.synchronize_device(worker, timeout=0.01))


def answer_of_a_replica(method: str, **client: Any) -> Any:
    """What `AsyncOmni` makes of the answer of a replica that failed in a control call."""
    from vllm_omni.engine.orchestrator import OrchestratorBase
    from vllm_omni.engine.stage_pool import StagePool
    from vllm_omni.entrypoints.async_omni import AsyncOmni

    pool = StagePool.__new__(StagePool)
    pool.__dict__.update(stage_id=1, clients=[SimpleNamespace(**client)])
    sink = Sink()
    orchestrator = SimpleNamespace(stage_pools=[pool], num_stages=1, rpc_async_queue=sink, _stage_input_processors={})

    async def ask(*, method: str, timeout: float | None = None, **_: Any) -> list[Any]:
        message = SimpleNamespace(
            rpc_id="call", method=method, timeout=timeout, args=(), kwargs={"clear_cache": False}, stage_ids=None
        )
        try:
            await OrchestratorBase._handle_collective_rpc(orchestrator, message)
        except Exception as exc:
            raise SystemError("the orchestrator has ended") from exc
        answers: list[Any] = sink.items[0].results
        return answers

    omni = SimpleNamespace(collective_rpc=ask)
    return raised(lambda: asyncio.run(AsyncOmni._engine_core_rpc(omni, method, stage_ids=[1], timeout=0.01)))


async def refuse(*_: Any, **__: Any) -> None:
    raise refused()


def sleep_that_a_language_stage_refuses() -> Any:
    return answer_of_a_replica("sleep", sleep_async=refuse, stage_type="llm")


def wake_up_that_a_language_stage_refuses() -> Any:
    return answer_of_a_replica("wake_up", wake_up_async=refuse, stage_type="llm")


def pause_that_a_language_stage_does_not_answer() -> Any:
    return answer_of_a_replica("pause_scheduler", pause_scheduler_async=never, stage_type="llm")


def reset_that_a_language_stage_does_not_answer() -> Any:
    return answer_of_a_replica("reset_mm_cache", reset_mm_cache_async=never, stage_type="llm")


def pause_that_a_stage_refuses() -> Any:
    return answer_of_a_replica("pause_scheduler", collective_rpc_async=refuse, stage_type="diffusion")


def adapter_call_that_no_stage_can_do(method: str) -> Any:
    """What a caller in Python is told, who has no route for it."""
    from vllm_omni.entrypoints.async_omni import AsyncOmni

    async def ask(**_: Any) -> list[Any]:
        return [{"supported": False, "error": "LoRA is not enabled."}]

    omni = SimpleNamespace(collective_rpc=ask, _coerce_stage_bool=AsyncOmni._coerce_stage_bool)
    found = raised(lambda: asyncio.run(getattr(AsyncOmni, method)(omni, 1)))
    return found if isinstance(found, Exception) else SystemError(f"{method} succeeds: {found}")


def removal_of_an_adapter_that_no_stage_can_do() -> Any:
    return adapter_call_that_no_stage_can_do("remove_lora")


def pin_of_an_adapter_that_no_stage_can_do() -> Any:
    return adapter_call_that_no_stage_can_do("pin_lora")


def session_without_a_stage() -> Any:
    """A duplex session is opened, and a stage has no live replica; stock has no word of its own for it."""
    from vllm_omni.engine.duplex.session.manager import DuplexSessionManager
    from vllm_omni.engine.duplex_orchestrator import DuplexOrchestrator

    from vllm_omni_errors.transports.realtime import duplex_error

    evicted = SimpleNamespace(stage_pools=[SimpleNamespace(stage_client=None, stage_id=0)])
    exc = raised(lambda: DuplexOrchestrator.sampling_defaults(evicted))
    word, message, _ = DuplexSessionManager._control_error(exc)
    return exc if word == "failed_precondition" else duplex_error(word, message)


def turn_without_a_stage() -> Any:
    """Likewise audio of a session that is open."""
    from vllm_omni.engine.duplex.session.model_channel import ModelChannel

    from vllm_omni_errors.transports.realtime import duplex_error

    told: list[Any] = []
    channel = SimpleNamespace(
        _ctx=SimpleNamespace(session=None, stage_port=SimpleNamespace(stage_count=0)),
        _out=SimpleNamespace(emit_error=lambda word, message, **_: told.append((word, message))),
    )
    append = ModelChannel._append_via_data_plane(channel, {}, final=True, operation_id=None, expected_epoch=None)
    exc = raised(lambda: asyncio.run(append))
    ModelChannel.send_runtime_error(channel, "runtime_append_failed", exc)
    ((word, message),) = told
    return exc if word == "runtime_append_failed" else duplex_error(word, message)


def call_that_failed_in_a_stage_process() -> Any:
    """A control call, answered by the process of a diffusion stage."""
    import msgspec
    import zmq
    from vllm_omni.diffusion.stage_diffusion_client import StageDiffusionClient
    from vllm_omni.distributed.omni_connectors.utils.serialization import OmniMsgpackDecoder
    from vllm_omni.entrypoints.async_omni import AsyncOmni

    from vllm_omni_errors.wire import to_fields

    exc = refused()
    record = record_of(exc)
    answer = {"type": "error", "rpc_id": "call", "error": str(exc)} | (to_fields(record) if record else {})
    frames = [msgspec.msgpack.encode(answer)]

    def receive(_: int) -> bytes:
        if not frames:
            raise zmq.Again
        return frames.pop()

    client = SimpleNamespace(
        _response_socket=SimpleNamespace(recv=receive),
        _decoder=OmniMsgpackDecoder(),
        _pending_rpcs={"call"},
        _rpc_results={},
        stage_id=1,
        replica_id=0,
    )

    async def ask(**_: Any) -> list[Any]:
        StageDiffusionClient._drain_responses(client)
        return [client._rpc_results["call"]]

    omni = SimpleNamespace(collective_rpc=ask)
    return raised(lambda: asyncio.run(AsyncOmni._engine_core_rpc(omni, "load", stage_ids=[1])))


def message_of_a_failure_offline() -> Any:
    """What a request fails with, by a message that is not of the client's side."""
    from vllm_omni.engine.messages import ErrorMessage
    from vllm_omni.entrypoints.omni_base import OmniBase

    exc = make("OmniServiceUnavailableError", "stage1")
    message = (
        ErrorMessage.from_exception(exc, stage_id=1)
        if hasattr(ErrorMessage, "from_exception")
        else ErrorMessage(error=str(exc), status_code=503, error_type="ServiceUnavailableError", stage_id=1)
    )
    return raised(lambda: OmniBase._raise_nonfatal_error_message(None, message))


def output_of_a_failure_offline() -> Any:
    """What a request fails with, by an output that carries the failure."""
    from vllm_omni.entrypoints.omni_base import OmniBase
    from vllm_omni.errors import client_error_metadata
    from vllm_omni.outputs import OmniRequestOutput

    exc = refused()
    if hasattr(OmniRequestOutput, "from_exception"):
        output = OmniRequestOutput.from_exception("r", exc, 1)
    else:
        status, kind = client_error_metadata(exc)
        output = OmniRequestOutput.from_error("r", str(exc), status_code=status, error_type=kind)
    omni = SimpleNamespace(request_states={}, errored=False)
    return raised(lambda: OmniBase._check_engine_output_error(omni, SimpleNamespace(engine_outputs=output), "r", 1))


def event_of_a_duplex_session() -> Any:
    from vllm_omni.protocol.duplex.events import ErrorEvent

    return ErrorEvent(code="unknown_session", message=LATE).error


def companion_that_was_lost() -> Any:
    """A request that needs what a companion of it makes, which was aborted."""
    from vllm_omni.engine.orchestrator import OrchestratorBase

    sink = Sink()
    companions = SimpleNamespace(
        get_parent_id={"companion": "r"}.get,
        is_companion_done=lambda _: False,
        pop_pending_parent=lambda _: {"stage_id": 1},
        cleanup_parent=lambda _: [],
    )
    orchestrator = SimpleNamespace(
        _cfg_tracker=companions,
        output_async_queue=sink,
        request_states={},
        _pd_kv_params={},
        _release_request_bindings=lambda _: None,
    )
    asyncio.run(OrchestratorBase._cleanup_request_ids(orchestrator, ["companion"]))
    return sink.items[0]


PLACES = (
    status_of_ranks,
    answer_of_a_worker,
    call_of_a_rank,
    request_of_several_processes,
    fallback_of_the_runner,
    batch_of_requests,
    replica_that_disappeared,
    interaction_without_request,
    interaction_that_is_refused,
    session_request,
    call_into_a_dead_engine,
    message_that_cannot_be_decoded,
    request_at_the_end_of_the_engine,
    abort_at_the_death_of_a_stage,
    next_stage_parameters,
    pixels_of_several_replicas,
    settings_of_a_session,
    partly_asleep,
    call_that_the_engine_does_not_answer,
    call_that_workers_do_not_answer,
    awaited_call_that_workers_do_not_answer,
    call_that_a_stage_does_not_answer,
    pause_that_waits_for_a_receive,
    pause_that_a_language_stage_does_not_answer,
    reset_that_a_language_stage_does_not_answer,
    pause_that_a_stage_refuses,
    sleep_that_a_language_stage_refuses,
    wake_up_that_a_language_stage_refuses,
    removal_of_an_adapter_that_no_stage_can_do,
    pin_of_an_adapter_that_no_stage_can_do,
    session_without_a_stage,
    turn_without_a_stage,
    call_that_failed_in_a_stage_process,
    message_of_a_failure_offline,
    output_of_a_failure_offline,
    event_of_a_duplex_session,
    companion_that_was_lost,
)


def server_with_a_wrong_deadline() -> Any:
    """The command line of the server, read."""
    from vllm_omni.entrypoints.cli.serve import OmniServeCommand

    try:
        return raised(lambda: OmniServeCommand().validate(None))
    except SystemExit as exc:
        return exc


def engine_with_a_wrong_deadline() -> Any:
    from vllm_omni.entrypoints.async_omni import AsyncOmni

    return raised(lambda: AsyncOmni(5))


REFUSALS = (server_with_a_wrong_deadline, engine_with_a_wrong_deadline)
"""What does not start with a deadline that is none; stock knows no deadline, and fails of what is missing next."""


def typed(found: Any) -> Any:
    """What the library makes of an exception that says whose fault it is."""
    from vllm.exceptions import VLLMError

    from vllm_omni_errors import to_details

    return to_details(found) if isinstance(found, VLLMError) else None


def described(found: Any) -> dict[str, Any]:
    """The status, type and text that a place's result says, by the record where there is one."""
    if found is None:
        return {"status": PASSED, "type": PASSED, "text": PASSED, "stage": None, "fatal": False}
    if isinstance(found, dict):  # a public object
        status = found["code"] if isinstance(found["code"], int) else None
        return {"status": status, "type": found["type"], "text": found["message"], "stage": None, "fatal": False}
    details = getattr(found, "details", None) or getattr(found, "error_details", None) or typed(found)
    if details is not None:
        return {
            "status": details.status_code,
            "type": details.error_type,
            "text": details.message,
            "stage": details.stage_id,
            "fatal": details.fatal,
        }
    if isinstance(found, BaseException):
        return {"status": None, "type": type(found).__name__, "text": str(found), "stage": None, "fatal": None}
    status = getattr(found, "error_status_code", None) or getattr(found, "status_code", None)
    return {"status": status, "type": found.error_type, "text": found.error, "stage": None, "fatal": None}


if __name__ == "__main__":
    results = {place.__name__: described(place()) for place in PLACES}
    os.environ[LIMIT] = "soon"
    results |= {refusal.__name__: described(refusal()) for refusal in REFUSALS}
    print("RESULT " + json.dumps(results))
