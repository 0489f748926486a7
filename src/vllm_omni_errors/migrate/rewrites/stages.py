# SPDX-License-Identifier: Apache-2.0
"""Phase `stages`: the record from the stage that breaks to the API process."""

from collections.abc import Mapping
from typing import ClassVar

from vllm_omni_errors.migrate.rewrite import Rewrite
from vllm_omni_errors.migrate.rewrites.shapes import (
    AddArgument,
    AddEntry,
    AddLastClause,
    AddMembers,
    AddMethods,
    AddParent,
    CatchInstead,
    DropReraise,
    InsertStatements,
    ReplaceBranch,
    ReplaceCall,
    ReplaceClause,
    ReplaceDict,
    ReplaceFunction,
    ReplaceStatement,
    StopTranslating,
    TryAround,
    WidenClause,
    WrapCallee,
)

EVERYTHING = ("*",)
DECIDED: Mapping[str, tuple[str, ...]] = {
    "diffusion/diffusion_engine.py": (
        "DiffusionEngine._validate_diffusion_kv_profile_limits",
        "DiffusionEngine.async_collective_rpc",
        "DiffusionEngine.collective_rpc",
    ),
    "diffusion/diffusion_kv/*": EVERYTHING,
    "diffusion/interaction/*": EVERYTHING,
    "diffusion/lora/*": EVERYTHING,
    "diffusion/models/*": EVERYTHING,
    "diffusion/postprocess/*": EVERYTHING,
    "diffusion/sched/*": EVERYTHING,
    "diffusion/stage_diffusion_client.py": ("StageDiffusionClient.collective_rpc_async",),
    "diffusion/utils/*": EVERYTHING,
    "diffusion/worker/diffusion_model_runner.py": EVERYTHING,
    "diffusion/worker/diffusion_worker.py": ("DiffusionWorker.synchronize_device", "WorkerProc._execute_rpc"),
    "diffusion/worker/request_batch.py": EVERYTHING,
    "engine/duplex/session/model_channel.py": EVERYTHING,
    "engine/duplex_orchestrator.py": ("DuplexOrchestrator.sampling_defaults",),
    "engine/rpc_result_router.py": EVERYTHING,
    "inputs/*": EVERYTHING,
    "model_executor/models/[!i]*": EVERYTHING,
    "model_executor/stage_input_processors/*": EVERYTHING,
}
"""Functions whose decided sites change.

Not here: what the sleep of a worker raises (`DiffusionWorker.sleep`), the errors of `engine/duplex` that have a code of
their own, and `model_executor/models/indextts2`, whose check the speech route calls and translates.
"""

DATA = "diffusion/data.py"
ENGINE = "diffusion/diffusion_engine.py"
INLINE = "diffusion/inline_stage_diffusion_client.py"
MESSAGES = "engine/messages.py"
MULTIPROC = "diffusion/executor/multiproc_executor.py"
MINIMAX = "diffusion/models/minimax_h3/pipeline_minimax_h3.py"
ORCHESTRATOR = "engine/orchestrator.py"
OUTPUTS = "outputs/__init__.py"
PROCESS = "diffusion/stage_diffusion_proc.py"
ROUTER = "engine/rpc_result_router.py"
STAGE_CLIENT = "diffusion/stage_diffusion_client.py"
WORKER = "diffusion/worker/diffusion_worker.py"

_DISPATCH = "StageDiffusionProc.run_loop._dispatch_request"
_DRAIN = "StageDiffusionClient._drain_responses"
_INLINE_DISPATCH = "InlineStageDiffusionClient._dispatch_request"
_BUSY_LOOP = "WorkerProc._worker_busy_loop"
_FORWARD = "OrchestratorBase._forward_to_next_stage_unguarded"
_DISPATCH_OR_FAIL = "OrchestratorBase._dispatch_or_fail_request"
_STAGE_LOOP = "StageDiffusionProc.run_loop"
_INTERACTION = "Orchestrator._handle_interaction"

_STAGE_MESSAGES = "vllm_omni_errors.stage_messages"
_DETAILS = ("vllm_omni.errors", "OmniErrorDetails")
_NORMALIZE = ("vllm_omni_errors.stage", "normalize")
_READABLE = (_STAGE_MESSAGES, "readable")
_RECEIVED = (_STAGE_MESSAGES, "received")
_CALL_FIELDS = (_STAGE_MESSAGES, "call_fields")
_RPC_ERROR = (_STAGE_MESSAGES, "rpc_error")
_TIMEOUT = ("vllm_omni.errors", "OmniStageTimeoutError")
_TO_DETAILS = ("vllm_omni_errors", "to_details")
_UNAVAILABLE = ("vllm_omni.errors", "OmniServiceUnavailableError")
_TO_EXCEPTION = ("vllm_omni_errors", "to_exception")
_TO_FIELDS = ("vllm_omni_errors.wire", "to_fields")
_VALIDATION = ("vllm.exceptions", "VLLMValidationError")
_NOT_FOUND = ("vllm.exceptions", "VLLMNotFoundError")
_SERVER = ("vllm_omni.errors", "OmniServerError")
_DEAD = ("vllm_omni.errors", "OmniEngineDeadError")
_CLIENT = ("vllm.exceptions", "VLLMClientError")


class _Stages(Rewrite):
    phase = "stages"


# ---- what carries the record -----------------------------------------------------------------------------------------


class OutputsCarryTheRecord(_Stages, AddMembers):
    """What a stage answers for a request says whole what went wrong, and not in three flat fields only."""

    module = OUTPUTS
    owner = "OmniRequestOutput"
    after_field = "error_type"
    fields = "error_details: OmniErrorDetails | None = None"
    methods = '''
        @classmethod
        def from_details(cls, request_id: str, details: OmniErrorDetails) -> "OmniRequestOutput":
            """The last output of a request that failed."""
            return cls(request_id=request_id, finished=True, **output_fields(details))

        @classmethod
        def from_exception(cls, request_id: str, exc: Exception, stage_id: int | None) -> "OmniRequestOutput":
            """The last output of a request that failed here. Logs the exception, unless it was logged elsewhere."""
            return cls.from_details(request_id, normalize(exc, request_id=request_id, stage_id=stage_id))
    '''
    imports = (_DETAILS, _NORMALIZE, (_STAGE_MESSAGES, "output_fields"))
    before = """
        @dataclass
        class OmniRequestOutput:
            error: str | None = None
            error_type: str | None = None

            def failed(self) -> bool:
                return self.error is not None
    """
    after = '''
        from vllm_omni_errors.stage import normalize
        from vllm_omni_errors.stage_messages import output_fields

        from vllm_omni.errors import OmniErrorDetails


        @dataclass
        class OmniRequestOutput:
            error: str | None = None
            error_type: str | None = None
            error_details: OmniErrorDetails | None = None

            def failed(self) -> bool:
                return self.error is not None

            @classmethod
            def from_details(cls, request_id: str, details: OmniErrorDetails) -> "OmniRequestOutput":
                """The last output of a request that failed."""
                return cls(request_id=request_id, finished=True, **output_fields(details))

            @classmethod
            def from_exception(cls, request_id: str, exc: Exception, stage_id: int | None) -> "OmniRequestOutput":
                """The last output of a request that failed here. Logs the exception, unless it was logged elsewhere."""
                return cls.from_details(request_id, normalize(exc, request_id=request_id, stage_id=stage_id))
    '''


class DeadStageBlocksNobody(_Stages, InsertStatements):
    """A message to a process that is gone waited for it for ever, and with it the orchestrator and every request."""

    module = STAGE_CLIENT
    function = "StageDiffusionClient._connect_transport"
    after_assignment = "self._request_socket"
    new = "self._request_socket.setsockopt(zmq.SNDTIMEO, 1_000)  # milliseconds; with a peer, it never waits"
    before = """
        def connect(self, address):
            self._request_socket = make(zmq.PUSH)
            self._request_socket.bind(address)
    """
    after = """
        def connect(self, address):
            self._request_socket = make(zmq.PUSH)
            self._request_socket.setsockopt(zmq.SNDTIMEO, 1_000)  # milliseconds; with a peer, it never waits
            self._request_socket.bind(address)
    """


class DeadStageIsNotAsked(_Stages, TryAround):
    """An abort that met the moment of a stage's death ended the orchestrator, and with it every request."""

    module = STAGE_CLIENT
    function = "StageDiffusionClient.abort_requests_async"
    call = "self._request_socket.send"
    new = """
        except zmq.Again:
            logger.warning("[StageDiffusionClient] stage-%s takes no message; nothing of it is left", self.stage_id)
    """
    before = """
        async def abort(self, request_ids):
            self._request_socket.send(encode(request_ids))
    """
    after = """
        async def abort(self, request_ids):
            try:
                self._request_socket.send(encode(request_ids))
            except zmq.Again:
                logger.warning("[StageDiffusionClient] stage-%s takes no message; nothing of it is left", self.stage_id)
    """


class DeadEngineTakesNoRequest(_Stages, InsertStatements):
    """A request to an engine whose orchestrator was gone waited for ever; only the chat route looked first."""

    module = "entrypoints/async_omni.py"
    function = "AsyncOmni.generate"
    new = """
        if self.errored:
            raise self.dead_error
    """
    before = """
        async def generate(self, prompt):
            await self.add(prompt)
    """
    after = """
        async def generate(self, prompt):
            if self.errored:
                raise self.dead_error
            await self.add(prompt)
    """


class EndedEngineAnswersTheLastRequests(_Stages, InsertStatements):
    """A request that came while the engine ended, after the others were told, waited for ever."""

    module = "entrypoints/async_omni.py"
    function = "AsyncOmni.generate"
    after_assignment = "submit_ts"
    new = """
        if not self.is_running:
            raise self.dead_error
    """
    before = """
        async def generate(self, prompt):
            await self.add(prompt)
            submit_ts = time.time()
    """
    after = """
        async def generate(self, prompt):
            await self.add(prompt)
            submit_ts = time.time()
            if not self.is_running:
                raise self.dead_error
    """


class UnreadableMessageFailsOneRequest(_Stages, WrapCallee):
    """A stage's message that cannot be decoded ended the orchestrator, and with it every request."""

    module = STAGE_CLIENT
    function = _DRAIN
    callee = "self._decoder.decode"
    wrapper = "readable"
    imports = (_READABLE,)
    before = """
        def drain(self, raw):
            return self._decoder.decode(raw)
    """
    after = """
        from vllm_omni_errors.stage_messages import readable


        def drain(self, raw):
            return readable(self._decoder.decode)(raw)
    """


class UnreadableRequestFailsAlone(_Stages, WrapCallee):
    """A request that a stage cannot decode ended the stage."""

    module = PROCESS
    function = _STAGE_LOOP
    callee = "decoder.decode"
    wrapper = "readable"
    imports = (_READABLE,)
    before = """
        def run(decoder, raw):
            return decoder.decode(raw)
    """
    after = """
        from vllm_omni_errors.stage_messages import readable


        def run(decoder, raw):
            return readable(decoder.decode)(raw)
    """


class UnreadableRequestIsAnswered(_Stages, InsertStatements):
    """What the stage could not decode goes back as the failure of its request."""

    module = PROCESS
    function = _STAGE_LOOP
    after_assignment = "msg_type"
    new = """
        if msg_type == "error":
            await response_socket.send(encoder.encode(msg))
    """
    before = """
        async def run(msg):
            msg_type = msg.get("type")
    """
    after = """
        async def run(msg):
            msg_type = msg.get("type")
            if msg_type == "error":
                await response_socket.send(encoder.encode(msg))
    """


class MessagesCarryTheRecord(_Stages, AddMembers):
    """What the orchestrator reports about a request says whole what went wrong."""

    module = MESSAGES
    owner = "ErrorMessage"
    after_field = "event_id"
    fields = "error_details: OmniErrorDetails | None = None"
    methods = '''
        @classmethod
        def from_details(
            cls, details: OmniErrorDetails, *, request_id: str | None = None, event_id: str | None = None
        ) -> ErrorMessage:
            """A failure that was classified before; ``request_id`` is the engine's, for whoever waits for it."""
            return cls(event_id=event_id, **message_fields(details, request_id=request_id))

        @classmethod
        def from_exception(
            cls,
            exc: BaseException,
            *,
            request_id: str | None = None,
            stage_id: int | None = None,
            event_id: str | None = None,
        ) -> ErrorMessage:
            """A failure that happened here. Logs the exception, unless it was logged elsewhere."""
            details = normalize(exc, request_id=request_id, stage_id=stage_id)
            return cls.from_details(details, request_id=request_id, event_id=event_id)
    '''
    imports = (_DETAILS, _NORMALIZE, (_STAGE_MESSAGES, "message_fields"))
    before = """
        class ErrorMessage(EngineQueueMessage, kw_only=True):
            error: str
            event_id: str | None = None
    """
    after = '''
        from vllm_omni_errors.stage import normalize
        from vllm_omni_errors.stage_messages import message_fields

        from vllm_omni.errors import OmniErrorDetails


        class ErrorMessage(EngineQueueMessage, kw_only=True):
            error: str
            event_id: str | None = None
            error_details: OmniErrorDetails | None = None

            @classmethod
            def from_details(
                cls, details: OmniErrorDetails, *, request_id: str | None = None, event_id: str | None = None
            ) -> ErrorMessage:
                """A failure that was classified before; ``request_id`` is the engine's, for whoever waits for it."""
                return cls(event_id=event_id, **message_fields(details, request_id=request_id))

            @classmethod
            def from_exception(
                cls,
                exc: BaseException,
                *,
                request_id: str | None = None,
                stage_id: int | None = None,
                event_id: str | None = None,
            ) -> ErrorMessage:
                """A failure that happened here. Logs the exception, unless it was logged elsewhere."""
                details = normalize(exc, request_id=request_id, stage_id=stage_id)
                return cls.from_details(details, request_id=request_id, event_id=event_id)
    '''


class DiffusionOutputsCarryTheRecord(_Stages, AddMembers):
    """What a worker gives back says whole what went wrong."""

    module = DATA
    owner = "DiffusionOutput"
    after_field = "media"
    fields = "error_details: OmniErrorDetails | None = None"
    methods = '''
        @classmethod
        def from_error(cls, error: str | OmniErrorDetails) -> "DiffusionOutput":
            """A failure of which the record is known, or only a text."""
            return cls(error=error) if isinstance(error, str) else cls(**output_fields(error))
    '''
    imports = (_DETAILS, (_STAGE_MESSAGES, "output_fields"))
    before = """
        @dataclass
        class DiffusionOutput:
            error: str | None = None
            media: DiffusionMediaOutput | None = None
    """
    after = '''
        from vllm_omni_errors.stage_messages import output_fields

        from vllm_omni.errors import OmniErrorDetails


        @dataclass
        class DiffusionOutput:
            error: str | None = None
            media: DiffusionMediaOutput | None = None
            error_details: OmniErrorDetails | None = None

            @classmethod
            def from_error(cls, error: str | OmniErrorDetails) -> "DiffusionOutput":
                """A failure of which the record is known, or only a text."""
                return cls(error=error) if isinstance(error, str) else cls(**output_fields(error))
    '''


class DiffusionFailureIsClassified(_Stages, ReplaceFunction):
    """A failure is classified where it happens: its text is not public unless somebody wrote it for the client."""

    module = DATA
    function = "DiffusionOutput.from_exception"
    shape = "4f395284300b"
    new = '''
        @classmethod
        def from_exception(cls, exc: BaseException, *, request_id: str | None = None) -> "DiffusionOutput":
            """A failure that happened here. Logs the exception, unless it was logged elsewhere."""
            return cls(**output_fields(normalize(exc, request_id=request_id)))
    '''
    imports = (_NORMALIZE,)
    before = """
        def from_exception(cls, exc):
            return cls(error=str(exc))
    """
    after = '''
        from vllm_omni_errors.stage import normalize


        @classmethod
        def from_exception(cls, exc: BaseException, *, request_id: str | None = None) -> "DiffusionOutput":
            """A failure that happened here. Logs the exception, unless it was logged elsewhere."""
            return cls(**output_fields(normalize(exc, request_id=request_id)))
    '''


class AsyncOutputsCarryTheRecord(_Stages, AddMembers):
    """What a worker process reports about a call says whole what went wrong."""

    module = DATA
    owner = "AsyncDiffusionOutput"
    after_field = "error"
    fields = "error_details: OmniErrorDetails | None = None"
    imports = (_DETAILS,)
    before = """
        @dataclass
        class AsyncDiffusionOutput:
            error: str | None = None
            rpc_id: str | None = None
    """
    after = """
        from vllm_omni.errors import OmniErrorDetails


        @dataclass
        class AsyncDiffusionOutput:
            error: str | None = None
            error_details: OmniErrorDetails | None = None
            rpc_id: str | None = None
    """


# ---- inside a diffusion stage ----------------------------------------------------------------------------------------


class _FailureOfOneRequest(_Stages, ReplaceCall):
    """What a request failed of was cut to a text: the client's mistake came out as the server's."""

    callee = "DiffusionOutput"
    parts = ("error",)
    about = "str(exc)"
    new = "DiffusionOutput.from_exception(exc, request_id=new_req.request_id)"
    before = """
        def run(new_req):
            try:
                return execute(new_req)
            except Exception as exc:
                return DiffusionOutput(error=str(exc))
    """
    after = """
        def run(new_req):
            try:
                return execute(new_req)
            except Exception as exc:
                return DiffusionOutput.from_exception(exc, request_id=new_req.request_id)
    """


class OneProcessKeepsTheFailure(_FailureOfOneRequest):
    __doc__ = _FailureOfOneRequest.__doc__
    module = "diffusion/executor/uniproc_executor.py"
    function = "UniProcDiffusionExecutor.execute_request"


class SeveralProcessesKeepTheFailure(_FailureOfOneRequest):
    __doc__ = _FailureOfOneRequest.__doc__
    module = MULTIPROC
    function = "MultiprocDiffusionExecutor.execute_request"
    hits = 2


class FallbackKeepsTheFailure(_FailureOfOneRequest):
    __doc__ = _FailureOfOneRequest.__doc__
    module = "diffusion/worker/diffusion_model_runner.py"
    function = "DiffusionModelRunner._execute_non_step_requests"


class BatchKeepsTheFailure(_Stages, AddArgument):
    """A batch that failed gave each of its requests the text alone."""

    module = "diffusion/worker/request_batch.py"
    function = "split_diffusion_output_by_request"
    callee = "DiffusionOutput"
    argument = (
        "error_status_code=result.error_status_code, error_type=result.error_type, error_details=result.error_details"
    )
    before = """
        def split(result):
            return DiffusionOutput(error=result.error)
    """
    after = """
        def split(result):
            return DiffusionOutput(
                error=result.error,
                error_status_code=result.error_status_code,
                error_type=result.error_type,
                error_details=result.error_details,
            )
    """


class RequestSchedulerKeepsTheRecord(_Stages, ReplaceStatement):
    """The scheduler of whole requests remembers the record of one that failed, not its text alone."""

    module = "diffusion/sched/request_scheduler.py"
    function = "RequestScheduler.update_from_output"
    targets = ("terminal_errors[request_id]",)
    about = "result.error"
    new = "terminal_errors[request_id] = result.error_details or result.error"
    before = """
        def update(terminal_errors, request_id, result):
            terminal_errors[request_id] = result.error
    """
    after = """
        def update(terminal_errors, request_id, result):
            terminal_errors[request_id] = result.error_details or result.error
    """


class StepSchedulerKeepsTheRecord(_Stages, ReplaceStatement):
    """The scheduler of steps remembers the record of a request that failed, not its text alone."""

    module = "diffusion/sched/step_scheduler.py"
    function = "StepScheduler.update_from_output"
    targets = ("output_error",)
    new = "output_error = (req_result.error_details or req_result.error) if req_result is not None else None"
    before = """
        def update(req_result):
            output_error = req_result.error if req_result is not None else None
            return output_error
    """
    after = """
        def update(req_result):
            output_error = (req_result.error_details or req_result.error) if req_result is not None else None
            return output_error
    """


class SchedulerStateHoldsTheRecord(_Stages, ReplaceStatement):
    """The state of a request that failed holds its record."""

    module = "diffusion/sched/interface.py"
    targets = ("error",)
    about = "error: str | None"
    new = "error: str | OmniErrorDetails | None = None"
    imports = (_DETAILS,)
    before = """
        class State:
            error: str | None = None
    """
    after = """
        from vllm_omni.errors import OmniErrorDetails


        class State:
            error: str | OmniErrorDetails | None = None
    """


class FinishedRequestKeepsTheRecord(_Stages, ReplaceCall):
    """A request whose failure only the scheduler remembers keeps its record."""

    module = ENGINE
    function = "DiffusionEngine._finalize_finished_request"
    callee = "DiffusionOutput"
    about = "state.error"
    new = "DiffusionOutput.from_error(state.error)"
    before = """
        def finalize(state):
            return DiffusionOutput(error=state.error)
    """
    after = """
        def finalize(state):
            return DiffusionOutput.from_error(state.error)
    """


class EngineRelaysTheRecord(_Stages, ReplaceBranch):
    """A failure that was classified below passes unchanged; a bare text is logged, and is no client's error."""

    module = ENGINE
    function = "DiffusionEngine.postprocess_output"
    test = "output.error"
    new = "raise to_exception(received(output, request_id=request.request_id))"
    imports = (_TO_EXCEPTION, _RECEIVED)
    before = """
        def postprocess(request, output):
            if output.error:
                raise RuntimeError(output.error)
            return output
    """
    after = """
        from vllm_omni_errors import to_exception
        from vllm_omni_errors.stage_messages import received


        def postprocess(request, output):
            if output.error:
                raise to_exception(received(output, request_id=request.request_id))
            return output
    """


# ---- between the worker processes of a stage -------------------------------------------------------------------------


class WorkerSendsTheRecordOfACall(_Stages, ReplaceCall):
    """A call that failed in a worker process came back as a text."""

    module = WORKER
    function = _BUSY_LOOP
    callee = "AsyncDiffusionOutput"
    parts = ("rpc_id", "error")
    new = "AsyncDiffusionOutput(kind=$kind, rpc_id=$rpc_id, error=$error, error_details=normalize(e))"
    imports = (_NORMALIZE,)
    before = """
        def loop(call):
            try:
                run(call)
            except Exception as e:
                send(AsyncDiffusionOutput(kind=RESULT, rpc_id=call, error=str(e)))
    """
    after = """
        from vllm_omni_errors.stage import normalize


        def loop(call):
            try:
                run(call)
            except Exception as e:
                send(AsyncDiffusionOutput(kind=RESULT, rpc_id=call, error=str(e), error_details=normalize(e)))
    """


class WorkerAnswersWithTheRecord(_Stages, AddEntry):
    """A call that failed in a worker process came back as a text."""

    module = WORKER
    function = _BUSY_LOOP
    hits = 2
    values = (
        ("status", '"error"'),
        ("error", "error"),
    )
    entry = '"error_details": normalize(e)'
    before = """
        def loop(call):
            try:
                run(call)
            except Exception as e:
                error = str(e)
                send({"status": "error", "error": error})
    """
    after = """
        def loop(call):
            try:
                run(call)
            except Exception as e:
                error = str(e)
                send({"status": "error", "error": error, "error_details": normalize(e)})
    """


class RanksAnswerWithTheRecord(_Stages, AddEntry):
    """A call that failed on some ranks came back as their texts and tracebacks."""

    module = WORKER
    function = "WorkerProc._execute_rpc"
    values = (("ok", "False"),)
    entry = '"error_details": normalize(e)'
    before = """
        def execute(call, status):
            try:
                run(call)
            except Exception as e:
                status.update({"ok": False, "error": str(e)})
    """
    after = """
        def execute(call, status):
            try:
                run(call)
            except Exception as e:
                status.update({"ok": False, "error": str(e), "error_details": normalize(e)})
    """


class CallFailsWithTheRecord(_Stages, ReplaceCall):
    """What a worker process reports about a failed call is what the caller gets."""

    module = MULTIPROC
    function = "MultiprocDiffusionExecutor._raise_for_rpc_error_dict"
    callee = "RuntimeError"
    new = "rpc_error(response)"
    imports = (_RPC_ERROR,)
    before = """
        def check(response):
            if response.get("status") == "error":
                raise RuntimeError(f"It failed with {response['error']}")
    """
    after = """
        from vllm_omni_errors.stage_messages import rpc_error


        def check(response):
            if response.get("status") == "error":
                raise rpc_error(response)
    """


class TracebacksStayInTheLog(_Stages, ReplaceBranch):
    """Texts and tracebacks of all ranks were joined into one message, which went to the client."""

    module = MULTIPROC
    function = "MultiprocDiffusionExecutor._unwrap_rpc_result_envelope"
    test = "failed"
    new = """
        for status in failed:
            logger.error("Rank %s failed: %s", status.get("rank"), status.get("traceback"))
        raise rpc_error(failed[0])
    """
    before = """
        def unwrap(failed):
            if failed:
                raise RuntimeError("".join(status["traceback"] for status in failed))
    """
    after = """
        def unwrap(failed):
            if failed:
                for status in failed:
                    logger.error("Rank %s failed: %s", status.get("rank"), status.get("traceback"))
                raise rpc_error(failed[0])
    """


class CollectedFailureIsAnException(_Stages, ReplaceStatement):
    """Of the failures of several ranks the first was raised, as a text."""

    module = MULTIPROC
    function = "MultiprocDiffusionExecutor.collective_rpc"
    call = "collected_errors.append"
    new = "collected_errors.append(rpc_error(response))"
    before = """
        def collect(responses):
            for response in responses:
                collected_errors.append(str(response.get("error")))
    """
    after = """
        def collect(responses):
            for response in responses:
                collected_errors.append(rpc_error(response))
    """


class CollectedFailuresAreExceptions(_Stages, ReplaceStatement):
    """Of the failures of several ranks the first was raised, as a text."""

    module = MULTIPROC
    function = "MultiprocDiffusionExecutor.collective_rpc"
    targets = ("collected_errors",)
    new = "collected_errors: list[Exception] = []"
    before = """
        def collect():
            collected_errors: list[str] = []
            return collected_errors
    """
    after = """
        def collect():
            collected_errors: list[Exception] = []
            return collected_errors
    """


class CollectedFailureIsRaised(_Stages, ReplaceCall):
    """Of the failures of several ranks the first was raised, as a text."""

    module = MULTIPROC
    function = "MultiprocDiffusionExecutor.collective_rpc"
    callee = "RuntimeError"
    about = "collected_errors[0]"
    new = "collected_errors[0]"
    before = """
        def collect(collected_errors):
            if collected_errors:
                raise RuntimeError(f"It failed: {collected_errors[0]}")
    """
    after = """
        def collect(collected_errors):
            if collected_errors:
                raise collected_errors[0]
    """


class PumpKeepsTheRecord(_Stages, ReplaceCall):
    """The thread that reads the workers' answers made a `RuntimeError` of every failure."""

    module = MULTIPROC
    function = "MultiprocDiffusionExecutor._result_pump"
    callee = "RuntimeError"
    about = "msg.error"
    new = "rpc_error(msg)"
    hits = 2
    before = """
        def pump(msg):
            return RuntimeError(msg.error)
    """
    after = """
        def pump(msg):
            return rpc_error(msg)
    """


class PumpSplitsTheRecord(_Stages, ReplaceCall):
    """The requests of a batch that failed get its record."""

    module = MULTIPROC
    function = "MultiprocDiffusionExecutor._result_pump"
    callee = "self._deliver_batch_split"
    new = "self._deliver_batch_split($_0, $_1, msg.error_details or msg.error)"
    before = """
        def pump(self, msg):
            self._deliver_batch_split(requests, msg.output, msg.error)
    """
    after = """
        def pump(self, msg):
            self._deliver_batch_split(requests, msg.output, msg.error_details or msg.error)
    """


class SplitKeepsTheRecord(_Stages, ReplaceCall):
    """The requests of a batch that failed get its record."""

    module = MULTIPROC
    function = "MultiprocDiffusionExecutor._deliver_batch_split"
    callee = "DiffusionOutput"
    about = "error=error"
    new = "DiffusionOutput.from_error(error)"
    before = """
        def deliver(error):
            return DiffusionOutput(error=error)
    """
    after = """
        def deliver(error):
            return DiffusionOutput.from_error(error)
    """


# ---- from a stage to the orchestrator --------------------------------------------------------------------------------


class StageReportsTheRecord(_Stages, ReplaceDict):
    """The message about a failed request carries the record, beside what a 0.30.0 reads of it."""

    module = PROCESS
    function = _DISPATCH
    parts = ("request_id", "metrics")
    values = (("type", '"error"'),)
    new = """{
        "type": "error",
        **to_fields(normalize(e, request_id=request_id, stage_id=self._od_config.stage_id)),
        "request_id": request_id,
        "metrics": $metrics,
    }"""
    imports = (_NORMALIZE, _TO_FIELDS)
    before = """
        def dispatch(self, request_id):
            try:
                run(request_id)
            except Exception as e:
                send({"type": "error", "request_id": request_id, "error": str(e), "metrics": metrics(e)})
    """
    after = """
        from vllm_omni_errors.stage import normalize
        from vllm_omni_errors.wire import to_fields


        def dispatch(self, request_id):
            try:
                run(request_id)
            except Exception as e:
                send(
                    {
                        "type": "error",
                        **to_fields(normalize(e, request_id=request_id, stage_id=self._od_config.stage_id)),
                        "request_id": request_id,
                        "metrics": metrics(e),
                    }
                )
    """


class _DoNotGuess(_Stages, ReplaceStatement):
    """Status and type stand in the record; a guess from the class is not needed."""

    targets = ("status_code, error_type",)
    before = """
        def dispatch(e):
            status_code, error_type = client_error_metadata(e)
            send(e)
    """
    after = """
        def dispatch(e):
            send(e)
    """


class StageDoesNotGuess(_DoNotGuess):
    __doc__ = _DoNotGuess.__doc__
    module = PROCESS
    function = _DISPATCH


class InlineStageDoesNotGuess(_DoNotGuess):
    __doc__ = _DoNotGuess.__doc__
    module = INLINE
    function = _INLINE_DISPATCH


class _LogOnce(_Stages, ReplaceStatement):
    """A failure is logged where it is classified, and a client's mistake without its traceback."""

    call = "logger.exception"
    about = "Diffusion request"
    before = """
        def dispatch(e):
            logger.exception("Diffusion request failed")
            send(e)
    """
    after = """
        def dispatch(e):
            send(e)
    """


class WorkerLogsOnce(_Stages, ReplaceStatement):
    """Who called the method knows whose failure it is, and logs it: a client's mistake without its traceback."""

    module = WORKER
    function = "WorkerWrapperBase.execute_method"
    call = "logger.exception"
    before = """
        def execute(method):
            try:
                return method()
            except Exception as e:
                logger.exception("It failed.")
                raise e
    """
    after = """
        def execute(method):
            try:
                return method()
            except Exception as e:
                raise e
    """


class WorkerNeedsNoLogText(_Stages, ReplaceStatement):
    """Nothing needs the text of the line that is not logged."""

    module = WORKER
    function = "WorkerWrapperBase.execute_method"
    targets = ("msg",)
    before = """
        def execute(method):
            try:
                return method()
            except Exception as e:
                msg = "It failed."
                raise e
    """
    after = """
        def execute(method):
            try:
                return method()
            except Exception as e:
                raise e
    """


class StageClientLogsNothingTwice(_Stages, ReplaceStatement):
    """The stage has logged its failure, and of a stage of 0.30.0 the raw text is logged where it is read."""

    module = STAGE_CLIENT
    function = "StageDiffusionClient._drain_responses"
    call = "logger.error"
    about = "error_msg"
    before = """
        def drain(error_msg):
            logger.error("It failed: %s", error_msg)
            return error_msg
    """
    after = """
        def drain(error_msg):
            return error_msg
    """


class StageLogsOnce(_LogOnce):
    __doc__ = _LogOnce.__doc__
    module = PROCESS
    function = _DISPATCH


class InlineStageLogsOnce(_LogOnce):
    __doc__ = _LogOnce.__doc__
    module = INLINE
    function = _INLINE_DISPATCH


class StageReportsTheRecordOfACall(_Stages, ReplaceDict):
    """A call that failed in a stage came back as a text."""

    module = PROCESS
    function = "StageDiffusionProc.run_loop"
    parts = ("rpc_id",)
    values = (("type", '"error"'),)
    new = """{
        "type": "error",
        **to_fields(normalize(e, stage_id=self._od_config.stage_id)),
        "rpc_id": $rpc_id,
    }"""
    before = """
        def loop(self, call):
            try:
                run(call)
            except Exception as e:
                send({"type": "error", "rpc_id": call, "error": str(e)})
    """
    after = """
        def loop(self, call):
            try:
                run(call)
            except Exception as e:
                send(
                    {
                        "type": "error",
                        **to_fields(normalize(e, stage_id=self._od_config.stage_id)),
                        "rpc_id": call,
                    }
                )
    """


class InlineStageReportsTheRecord(_Stages, ReplaceCall):
    """A stage inside the API process reports what a stage in its own does."""

    module = INLINE
    function = _INLINE_DISPATCH
    callee = "OmniRequestOutput.from_error"
    new = "OmniRequestOutput.from_exception(request_id, e, stage_id=self.stage_id)"
    before = """
        def dispatch(self, request_id):
            try:
                run(request_id)
            except Exception as e:
                return OmniRequestOutput.from_error(request_id=request_id, error_message=str(e))
    """
    after = """
        def dispatch(self, request_id):
            try:
                run(request_id)
            except Exception as e:
                return OmniRequestOutput.from_exception(request_id, e, stage_id=self.stage_id)
    """


class ReadTheRecordOfAStage(_Stages, ReplaceStatement):
    """The record is read once; a stage of 0.30.0 has flat fields only, of which a 4xx is the client's error."""

    module = STAGE_CLIENT
    function = _DRAIN
    targets = ("error_msg",)
    new = "details = received(msg, request_id=req_id, stage_id=self.stage_id)"
    imports = (_RECEIVED,)
    before = """
        def drain(self, msg, req_id):
            error_msg = msg.get("error") or "unknown"
            return details
    """
    after = """
        from vllm_omni_errors.stage_messages import received


        def drain(self, msg, req_id):
            details = received(msg, request_id=req_id, stage_id=self.stage_id)
            return details
    """


class ReadNoFlatFields(_Stages, ReplaceStatement):
    """Status and type stand in the record."""

    module = STAGE_CLIENT
    function = _DRAIN
    targets = ("status_code", "error_type")
    hits = 2
    before = """
        def drain(msg):
            status_code = msg.get("status_code")
            return msg
    """
    after = """
        def drain(msg):
            return msg
    """


class RelayTheRecordOfAStage(_Stages, ReplaceCall):
    """The request's last output carries the record of its stage."""

    module = STAGE_CLIENT
    function = _DRAIN
    callee = "OmniRequestOutput.from_error"
    new = "OmniRequestOutput.from_details($_0, details)"
    before = """
        def drain(req_id, details):
            return OmniRequestOutput.from_error(req_id, details.message, status_code=None)
    """
    after = """
        def drain(req_id, details):
            return OmniRequestOutput.from_details(req_id, details)
    """


class RelayTheRecordOfACall(_Stages, ReplaceDict):
    """The result of a call that failed in a stage carries the stage's record."""

    module = STAGE_CLIENT
    function = _DRAIN
    parts = ("reason",)
    values = (("error", "True"),)
    new = '{"error": True, "reason": details.message, **call_fields(details)}'
    imports = (_CALL_FIELDS,)
    before = """
        def drain(details):
            return {"error": True, "reason": error_msg}
    """
    after = """
        from vllm_omni_errors.stage_messages import call_fields


        def drain(details):
            return {"error": True, "reason": details.message, **call_fields(details)}
    """


# ---- in the orchestrator ---------------------------------------------------------------------------------------------


class UnavailableStage(_Stages, AddParent):
    """A stage that has no live replica is 503; code that catches the class by its name still does."""

    module = "engine/stage_pool.py"
    owner = "StageUnavailableError"
    parent = "OmniServiceUnavailableError"
    imports = (("vllm_omni.errors", "OmniServiceUnavailableError"),)
    before = """
        class StageUnavailableError(RuntimeError):
            pass
    """
    after = """
        from vllm_omni.errors import OmniServiceUnavailableError


        class StageUnavailableError(OmniServiceUnavailableError, RuntimeError):
            pass
    """


class _Report(_Stages, ReplaceCall):
    """What the orchestrator says about a failure is a record, whose text is fit for the client."""

    callee = "ErrorMessage"


class RelayStageError(_Report):
    """What a stage's output says about a failure passes whole; a bare text is logged, and is no client's error."""

    module = ORCHESTRATOR
    function = "OrchestratorBase._handle_stage_error"
    new = """ErrorMessage.from_details(
        received(output, text=error, request_id=$request_id, stage_id=$stage_id), request_id=$request_id
    )"""
    imports = (_RECEIVED,)
    before = """
        def handle(output, error, x, stage):
            return ErrorMessage(request_id=x, stage_id=stage, error=output.error)
    """
    after = """
        from vllm_omni_errors.stage_messages import received


        def handle(output, error, x, stage):
            return ErrorMessage.from_details(received(output, text=error, request_id=x, stage_id=stage), request_id=x)
    """


class DeadReplicaIsFatal(_Report):
    """A request whose replica died is told so, not what the replica died of."""

    module = ORCHESTRATOR
    function = "OrchestratorBase._handle_dead_replica"
    new = "ErrorMessage.from_exception(OmniEngineDeadError(stage_id=$stage_id), request_id=$request_id)"
    imports = (_DEAD,)
    before = """
        def handle(error, request, stage):
            return ErrorMessage(error=str(error), fatal=True, request_id=request, stage_id=stage)
    """
    after = """
        from vllm_omni.errors import OmniEngineDeadError


        def handle(error, request, stage):
            return ErrorMessage.from_exception(OmniEngineDeadError(stage_id=stage), request_id=request)
    """


class NoReplicaIsUnavailable(_Report):
    """A stage without a replica was reported as a dead engine, 500."""

    module = ORCHESTRATOR
    function = "OrchestratorBase._fail_request_dead_stage"
    new = """ErrorMessage.from_exception(
        StageUnavailableError(f"Stage {stage_id} is not available: it has no live replica.", stage_id=$stage_id),
        request_id=$request_id,
    )"""
    before = """
        def fail(request, stage_id):
            return ErrorMessage(error="no replica", fatal=True, request_id=request, stage_id=stage_id)
    """
    after = """
        def fail(request, stage_id):
            return ErrorMessage.from_exception(
                StageUnavailableError(f"Stage {stage_id} is not available: it has no live replica.", stage_id=stage_id),
                request_id=request,
            )
    """


class EngineDeathIsARecord(_Report):
    """The end of the whole engine was reported with the raw text of what ended it."""

    module = ORCHESTRATOR
    function = "OrchestratorBase.run"
    new = "ErrorMessage.from_exception(e)"
    before = """
        def run():
            try:
                serve()
            except EngineDeadError as e:
                return ErrorMessage(error=str(e), fatal=True)
    """
    after = """
        def run():
            try:
                serve()
            except EngineDeadError as e:
                return ErrorMessage.from_exception(e)
    """


class FailOneRequest(_Stages, ReplaceFunction):
    """One request fails with whatever exception it was, and not only with a client's error of a text and a number."""

    module = ORCHESTRATOR
    function = "OrchestratorBase._fail_request_client_error"
    shape = "259cad1bcded"
    new = '''
        async def _fail_request(
            self,
            req_id: str,
            stage_id: int,
            exc: Exception,
            *,
            release_owners: bool = False,
        ) -> None:
            """Fail one request, and no other: tell its client, and release what it holds in every stage pool."""
            await self.output_async_queue.put(ErrorMessage.from_exception(exc, request_id=req_id, stage_id=stage_id))
            await self._cleanup_request_ids(
                [req_id, *self._cfg_tracker.cleanup_parent(req_id)], abort=True, release_owners=release_owners
            )
    '''
    before = """
        async def fail(self, request, error):
            self.queue.put(ErrorMessage(error=error, status_code=400))
    """
    after = '''
        async def _fail_request(
            self,
            req_id: str,
            stage_id: int,
            exc: Exception,
            *,
            release_owners: bool = False,
        ) -> None:
            """Fail one request, and no other: tell its client, and release what it holds in every stage pool."""
            await self.output_async_queue.put(ErrorMessage.from_exception(exc, request_id=req_id, stage_id=stage_id))
            await self._cleanup_request_ids(
                [req_id, *self._cfg_tracker.cleanup_parent(req_id)], abort=True, release_owners=release_owners
            )
    '''


class _Fail(_Stages, ReplaceCall):
    """The request fails with a typed exception."""

    callee = "self._fail_request_client_error"


class LostHandoffIsTheServers(_Fail):
    """A lost hand-over between stages was sent as a client's error with status 502."""

    module = ORCHESTRATOR
    function = _DISPATCH_OR_FAIL
    parts = ("error_type",)
    new = "self._fail_request($_0, $_1, e, release_owners=True)"
    before = """
        async def dispatch(self, request, stage):
            try:
                await run()
            except Lost as e:
                await self._fail_request_client_error(request, stage, str(e), status_code=502, error_type="Lost")
    """
    after = """
        async def dispatch(self, request, stage):
            try:
                await run()
            except Lost as e:
                await self._fail_request(request, stage, e, release_owners=True)
    """


class HugeNumberIsTheClients(_Fail):
    """A number that does not fit into a message is the client's mistake, and was answered with an inner text."""

    module = ORCHESTRATOR
    function = _DISPATCH_OR_FAIL
    about = "cannot be serialized"
    new = 'self._fail_request($_0, $_1, VLLMValidationError("A number in the request is too large."))'
    imports = (_VALIDATION,)
    before = """
        async def dispatch(self, request, stage):
            try:
                await run()
            except OverflowError as e:
                await self._fail_request_client_error(request, stage, f"It cannot be serialized: {e}")
    """
    after = """
        from vllm.exceptions import VLLMValidationError


        async def dispatch(self, request, stage):
            try:
                await run()
            except OverflowError as e:
                await self._fail_request(request, stage, VLLMValidationError("A number in the request is too large."))
    """


class PromptOfEmbeddingsIsTheClients(_Fail):
    """A pipeline whose stages start at once needs the prompt's tokens."""

    module = ORCHESTRATOR
    function = "OrchestratorBase._prewarm_async_chunk_stages"
    new = """self._fail_request(
        $_0,
        $_1,
        VLLMValidationError("This model needs the prompt as text or tokens.", parameter="prompt_embeds"),
        release_owners=True,
    )"""
    before = """
        async def prewarm(self, request):
            await self._fail_request_client_error(request, 0, "no tokens")
    """
    after = """
        async def prewarm(self, request):
            await self._fail_request(
                request,
                0,
                VLLMValidationError("This model needs the prompt as text or tokens.", parameter="prompt_embeds"),
                release_owners=True,
            )
    """


class DispatchFailsOneRequest(_Stages, AddLastClause):
    """Whatever keeps a request from being handed to a stage, the stage's input processor too, fails that request alone;
    it ended the orchestrator, and with it every request."""

    module = ORCHESTRATOR
    function = _DISPATCH_OR_FAIL
    clauses = (("NativeKVHandoffError",), ("StageUnavailableError",), ("EngineDeadError",), ("OverflowError",))
    new = """
        except Exception as e:
            await self._fail_request(req_id, stage_id, e, release_owners=True)
            return False
    """
    before = """
        async def dispatch(self, req_id, stage_id):
            try:
                await run()
            except OverflowError:
                return False
    """
    after = """
        async def dispatch(self, req_id, stage_id):
            try:
                await run()
            except OverflowError:
                return False
            except Exception as e:
                await self._fail_request(req_id, stage_id, e, release_owners=True)
                return False
    """


class InputProcessorRejects(_Stages, ReplaceClause):
    """What a stage's input processor refuses is the client's, whichever client error it says it with."""

    module = ORCHESTRATOR
    function = _FORWARD
    clauses = (("OmniClientError",), ("Exception",))
    clause = ("OmniClientError",)
    new = """
        except VLLMClientError as exc:
            await self._fail_request(req_id, next_logical, exc, release_owners=req_state.session_owned)
            return
    """
    imports = (_CLIENT,)
    before = """
        async def forward(self, req_id, next_logical, req_state):
            try:
                run()
            except OmniClientError as exc:
                await self.fail(exc.status_code)
                return
            except Exception:
                raise
    """
    after = """
        from vllm.exceptions import VLLMClientError


        async def forward(self, req_id, next_logical, req_state):
            try:
                run()
            except VLLMClientError as exc:
                await self._fail_request(req_id, next_logical, exc, release_owners=req_state.session_owned)
                return
            except Exception:
                raise
    """


class NoInputIsTheServers(_Stages, ReplaceCall):
    """A stage that gives its successor nothing to work on has failed: 500, with the stage."""

    module = ORCHESTRATOR
    function = _FORWARD
    callee = "OmniRequestOutput.from_error"
    hits = 2
    new = """OmniRequestOutput.from_exception(
        $_0, OmniServerError(f"Stage {src_stage_id} gave the next one no input."), stage_id=src_stage_id
    )"""
    imports = (_SERVER,)
    before = """
        def forward(req_id, src_stage_id):
            return OmniRequestOutput.from_error(req_id, "no inputs")
    """
    after = """
        from vllm_omni.errors import OmniServerError


        def forward(req_id, src_stage_id):
            return OmniRequestOutput.from_exception(
                req_id, OmniServerError(f"Stage {src_stage_id} gave the next one no input."), stage_id=src_stage_id
            )
    """


class LostCompanionIsTheServers(_Report):
    """A request whose companion is gone failed without a status."""

    module = ORCHESTRATOR
    function = "OrchestratorBase._cleanup_request_ids"
    new = """ErrorMessage.from_exception(
        OmniServerError("A part of the request was aborted before it was finished."),
        request_id=$request_id,
        stage_id=$stage_id,
    )"""
    before = """
        def cleanup(request, stage):
            return ErrorMessage(request_id=request, stage_id=stage, error="lost")
    """
    after = """
        def cleanup(request, stage):
            return ErrorMessage.from_exception(
                OmniServerError("A part of the request was aborted before it was finished."),
                request_id=request,
                stage_id=stage,
            )
    """


class IncompleteCompanionsAreTheServers(_Report):
    """A request whose companions' outputs are missing failed without a status."""

    module = ORCHESTRATOR
    function = _FORWARD
    new = """ErrorMessage.from_exception(
        OmniServerError("A part of the request has no output."), request_id=$request_id, stage_id=$stage_id
    )"""
    before = """
        def forward(request, stage):
            return ErrorMessage(request_id=request, stage_id=stage, error="incomplete")
    """
    after = """
        def forward(request, stage):
            return ErrorMessage.from_exception(
                OmniServerError("A part of the request has no output."), request_id=request, stage_id=stage
            )
    """


class SessionRequestIsARecord(_Report):
    """The text of the scheduler is logged; the session's client is told that its stage failed."""

    module = ORCHESTRATOR
    function = "OrchestratorBase._report_duplex_session_request_error"
    new = """ErrorMessage.from_details(
        received(eco, text=error, request_id=$request_id, stage_id=$stage_id), request_id=$request_id
    )"""
    before = """
        def report(eco, error, key, stage):
            return ErrorMessage(error=error, fatal=False, request_id=key, stage_id=stage)
    """
    after = """
        def report(eco, error, key, stage):
            return ErrorMessage.from_details(received(eco, text=error, request_id=key, stage_id=stage), request_id=key)
    """


class InteractionWithoutRequest(_Report):
    """An interaction with a request that is not running: 404, without the internal id."""

    module = ORCHESTRATOR
    function = _INTERACTION
    about = "No active"
    new = """ErrorMessage.from_exception(
        VLLMNotFoundError("The request is not active."),
        request_id=$request_id,
        stage_id=$stage_id,
        event_id=$event_id,
    )"""
    imports = (_NOT_FOUND,)
    before = """
        def interact(request, event, stage):
            return ErrorMessage(error="No active request", request_id=request, event_id=event, stage_id=stage)
    """
    after = """
        from vllm.exceptions import VLLMNotFoundError


        def interact(request, event, stage):
            return ErrorMessage.from_exception(
                VLLMNotFoundError("The request is not active."),
                request_id=request,
                stage_id=stage,
                event_id=event,
            )
    """


class FailedInteraction(_Report):
    """An interaction that a stage refused keeps what the stage said, and nothing else of the exception."""

    module = ORCHESTRATOR
    function = _INTERACTION
    about = "{exc}"
    new = "ErrorMessage.from_exception(exc, request_id=$request_id, stage_id=$stage_id, event_id=$event_id)"
    before = """
        def interact(request, event, stage):
            try:
                submit()
            except Exception as exc:
                return ErrorMessage(error=f"failed: {exc}", request_id=request, event_id=event, stage_id=stage)
    """
    after = """
        def interact(request, event, stage):
            try:
                submit()
            except Exception as exc:
                return ErrorMessage.from_exception(exc, request_id=request, stage_id=stage, event_id=event)
    """


class DisappearedReplicaIsFatal(_Report):
    """A request whose replica left is told so, with its stage: 500, fatal."""

    module = "engine/membership_controller.py"
    function = "MembershipController.handle_unregister"
    new = "ErrorMessage.from_exception(OmniEngineDeadError(stage_id=$stage_id), request_id=$request_id)"
    imports = (_DEAD,)
    before = """
        def unregister(request, stage):
            return ErrorMessage(error="gone", request_id=request, stage_id=stage)
    """
    after = """
        from vllm_omni.errors import OmniEngineDeadError


        def unregister(request, stage):
            return ErrorMessage.from_exception(OmniEngineDeadError(stage_id=stage), request_id=request)
    """


class CrashedOrchestratorIsFatal(_Report):
    """The raw text of what ended the orchestrator was sent to every client."""

    module = "engine/omni_engine_base.py"
    function = "OmniEngineBase._bootstrap_orchestrator"
    new = "ErrorMessage.from_exception(OmniEngineDeadError())"
    imports = (_DEAD,)
    before = """
        def bootstrap(text):
            return ErrorMessage(error=text, fatal=True)
    """
    after = """
        from vllm_omni.errors import OmniEngineDeadError


        def bootstrap(text):
            return ErrorMessage.from_exception(OmniEngineDeadError())
    """


class CrashTextStaysInTheLog(_Stages, ReplaceStatement):
    """The text of the crash is in the log already."""

    module = "engine/omni_engine_base.py"
    function = "OmniEngineBase._bootstrap_orchestrator"
    targets = ("error_text",)
    before = """
        def bootstrap(e):
            error_text = str(e)
            log(e)
    """
    after = """
        def bootstrap(e):
            log(e)
    """


class StageHasADeadline(_Stages, AddMethods):
    """A stage that said nothing any more let its requests wait for ever; an operator may set a limit."""

    module = ORCHESTRATOR
    function = "OrchestratorBase"
    new = '''
        async def _fail_late_requests(self) -> None:
            """Fail each request that a stage holds for longer than VLLM_OMNI_STAGE_TIMEOUT_S, on both sides."""
            async for late_id, stage_id, exc in late_requests(self.request_states, self._shutdown_event):
                req_id = self._cfg_tracker.get_parent_id(late_id) or late_id
                await self._fail_request(req_id, stage_id, exc, release_owners=True)
    '''
    imports = (("vllm_omni_errors.stage_deadline", "late_requests"),)
    before = """
        class Orchestrator:
            def run(self):
                pass
    """
    after = '''
        from vllm_omni_errors.stage_deadline import late_requests


        class Orchestrator:
            def run(self):
                pass

            async def _fail_late_requests(self) -> None:
                """Fail each request that a stage holds for longer than VLLM_OMNI_STAGE_TIMEOUT_S, on both sides."""
                async for late_id, stage_id, exc in late_requests(self.request_states, self._shutdown_event):
                    req_id = self._cfg_tracker.get_parent_id(late_id) or late_id
                    await self._fail_request(req_id, stage_id, exc, release_owners=True)
    '''


class DeadlineIsKept(_Stages, ReplaceStatement):
    """The deadline is one of the tasks of the orchestrator; without a limit it ends at once."""

    module = ORCHESTRATOR
    function = "OrchestratorBase.run"
    targets = ("tasks",)
    new = """
        late_task = asyncio.create_task(self._fail_late_requests(), name="orchestrator-stage-deadline")
        tasks = [request_task, output_task, late_task]
    """
    before = """
        async def run(self):
            tasks = [request_task, output_task]
    """
    after = """
        async def run(self):
            late_task = asyncio.create_task(self._fail_late_requests(), name="orchestrator-stage-deadline")
            tasks = [request_task, output_task, late_task]
    """


class ServerRefusesAWrongDeadline(_Stages, InsertStatements):
    """A deadline that is none ended the orchestrator of a server that had started; nobody can start one with it."""

    module = "entrypoints/cli/serve.py"
    function = "OmniServeCommand.validate"
    new = "exit_unless_limit_is_valid()"
    imports = (("vllm_omni_errors.stage_deadline", "exit_unless_limit_is_valid"),)
    before = """
        def validate(args):
            check(args)
    """
    after = """
        from vllm_omni_errors.stage_deadline import exit_unless_limit_is_valid


        def validate(args):
            exit_unless_limit_is_valid()
            check(args)
    """


class EngineRefusesAWrongDeadline(_Stages, InsertStatements):
    """Offline it is a `ValueError` of the constructor, before anything is loaded."""

    module = "entrypoints/omni_base.py"
    function = "OmniBase.__init__"
    new = "limit_s()  # raises ValueError"
    imports = (("vllm_omni_errors.stage_deadline", "limit_s"),)
    before = """
        class OmniBase:
            def __init__(self, model):
                self.model = model
    """
    after = """
        from vllm_omni_errors.stage_deadline import limit_s


        class OmniBase:
            def __init__(self, model):
                limit_s()  # raises ValueError
                self.model = model
    """


# ---- answers of calls into the engine --------------------------------------------------------------------------------


class CallOnADeadEngine(_Stages, ReplaceCall):
    """A call after the engine's end fails with the engine's record, not with a text."""

    module = ROUTER
    function = "RpcResultRouter.register"
    callee = "RuntimeError"
    about = "_terminal_error"
    new = "rpc_error(self._terminal_error)"
    imports = (_RPC_ERROR,)
    before = """
        def register(self):
            if self._terminal_error is not None:
                raise RuntimeError(self._terminal_error.error)
    """
    after = """
        from vllm_omni_errors.stage_messages import rpc_error


        def register(self):
            if self._terminal_error is not None:
                raise rpc_error(self._terminal_error)
    """


class CallAnsweredByAnError(_Stages, ReplaceCall):
    """A call that the engine answers with an error fails with the error's record, not with a text."""

    module = ROUTER
    function = "CorrelatedRpcClient.execute"
    callee = "RuntimeError"
    new = "rpc_error(result)"
    before = """
        def execute(result):
            raise RuntimeError(result.error)
    """
    after = """
        def execute(result):
            raise rpc_error(result)
    """


class LateDuplexCallStillCaught(_Stages, WidenClause):
    """A call of a duplex session that the engine does not answer in time keeps the session's word for that."""

    module = "engine/duplex_omni_engine.py"
    function = "DuplexOmniEngine._execute_control"
    clauses = (("TimeoutError",), ("RuntimeError",))
    clause = ("TimeoutError",)
    added = "OmniStageTimeoutError"
    imports = (_TIMEOUT,)
    before = """
        def control():
            try:
                return execute()
            except TimeoutError:
                return None
            except RuntimeError as exc:
                return str(exc)
    """
    after = """
        from vllm_omni.errors import OmniStageTimeoutError


        def control():
            try:
                return execute()
            except (TimeoutError, OmniStageTimeoutError):
                return None
            except RuntimeError as exc:
                return str(exc)
    """


class LateAbortStillCaught(_Stages, WidenClause):
    """An abort that the engine does not answer in time is a warning, as before."""

    module = "entrypoints/async_omni_base.py"
    function = "AsyncOmniBase._abort_internal_requests"
    clauses = (("TimeoutError",), ("Exception",))
    clause = ("TimeoutError",)
    added = "OmniStageTimeoutError"
    imports = (_TIMEOUT,)
    before = """
        async def abort():
            try:
                await ask()
            except TimeoutError:
                warn()
            except Exception:
                log()
    """
    after = """
        from vllm_omni.errors import OmniStageTimeoutError


        async def abort():
            try:
                await ask()
            except (TimeoutError, OmniStageTimeoutError):
                warn()
            except Exception:
                log()
    """


class LanguageStageAnswersInTime(_Stages, WrapCallee):
    """A control call that a language stage does not answer in time is 504, as one of a diffusion stage."""

    module = "engine/stage_pool.py"
    function = "StagePool.collective_rpc"
    callee = "asyncio.wait_for"
    wrapper = "answers_in_time"
    imports = (("vllm_omni_errors.control", "answers_in_time"),)
    before = """
        async def call(result, timeout):
            return await asyncio.wait_for(result, timeout=timeout)
    """
    after = """
        from vllm_omni_errors.control import answers_in_time


        async def call(result, timeout):
            return await answers_in_time(asyncio.wait_for)(result, timeout=timeout)
    """


class ReplicaAnswersWithTheRecord(_Stages, AddEntry):
    """Why a control call failed at a replica was a text."""

    module = "engine/stage_pool.py"
    function = "StagePool.collective_rpc"
    values = (("supported", "False"), ("error", "error"))
    entry = "**call_fields(to_details(exc, stage_id=self.stage_id))"
    imports = (_CALL_FIELDS, _TO_DETAILS)
    before = """
        def call(self):
            try:
                return ask()
            except Exception as exc:
                error = str(exc)
                return {"supported": False, "error": error}
    """
    after = """
        from vllm_omni_errors import to_details
        from vllm_omni_errors.stage_messages import call_fields


        def call(self):
            try:
                return ask()
            except Exception as exc:
                error = str(exc)
                return {"supported": False, "error": error, **call_fields(to_details(exc, stage_id=self.stage_id))}
    """


class PauseAnswersWithTheRecord(_Stages, AddEntry):
    """Why a replica could not be paused was a text."""

    module = ORCHESTRATOR
    function = "OrchestratorBase._handle_collective_rpc"
    values = (("supported", "False"),)
    entry = "**call_fields(to_details(exc, stage_id=pool.stage_id))"
    imports = (_CALL_FIELDS, _TO_DETAILS)
    before = """
        def call(pool):
            try:
                return ask(pool)
            except Exception as exc:
                return {"supported": False, "error": str(exc)}
    """
    after = """
        from vllm_omni_errors import to_details
        from vllm_omni_errors.stage_messages import call_fields


        def call(pool):
            try:
                return ask(pool)
            except Exception as exc:
                return {"supported": False, "error": str(exc), **call_fields(to_details(exc, stage_id=pool.stage_id))}
    """


class CallEnds(_Stages, WrapCallee):
    """A control call of a replica that died, or was frozen, was never answered, and nor was any request after it."""

    module = ORCHESTRATOR
    function = "OrchestratorBase._handle_collective_rpc"
    callee = "pool.collective_rpc"
    wrapper = "asks_replica"
    arguments = ", pool"
    imports = (("vllm_omni_errors.control", "asks_replica"),)
    before = """
        async def handle(pool, replica_id):
            return await pool.collective_rpc(replica_id=replica_id, timeout=None)
    """
    after = """
        from vllm_omni_errors.control import asks_replica


        async def handle(pool, replica_id):
            return await asks_replica(pool.collective_rpc, pool)(replica_id=replica_id, timeout=None)
    """


class FailedCallKeepsTheServer(_Stages, DropReraise):
    """A sleep or a wake-up that failed in a language stage ended the orchestrator, and with it the whole server."""

    module = ORCHESTRATOR
    function = "OrchestratorBase._handle_collective_rpc"
    before = """
        def call(pool, method):
            try:
                result = ask(pool, method)
            except Exception as exc:
                if method not in RESUMABLE:
                    raise
                result = {"supported": False, "error": str(exc)}
            return result
    """
    after = """
        def call(pool, method):
            try:
                result = ask(pool, method)
            except Exception as exc:
                result = {"supported": False, "error": str(exc)}
            return result
    """


class _FailedCallSaysWhichStage(_Stages, ReplaceCall):
    """A worker that could not do what a control call asks for did not say of which stage it is."""

    callee = "OmniACK"
    parts = ("error_msg",)
    new = "OmniACK(task_id=$task_id, status=$status, stage_id=self.stage_id, rank=self.rank, error_msg=$error_msg)"
    before = """
        def handle(self, task, text):
            return OmniACK(task_id=task.task_id, status="ERROR", error_msg=text)
    """
    after = """
        def handle(self, task, text):
            return OmniACK(task_id=task.task_id, status="ERROR", stage_id=self.stage_id, rank=self.rank, error_msg=text)
    """


class FailedSleepSaysWhichStage(_FailedCallSaysWhichStage):
    __doc__ = _FailedCallSaysWhichStage.__doc__
    module = "diffusion/worker/diffusion_worker.py"
    function = "DiffusionWorker.handle_sleep_task"


class FailedWakeUpSaysWhichStage(_FailedCallSaysWhichStage):
    __doc__ = _FailedCallSaysWhichStage.__doc__
    module = "diffusion/worker/diffusion_worker.py"
    function = "DiffusionWorker.handle_wake_task"


class SessionWithoutAStage(_Stages, InsertStatements):
    """A duplex session could not be opened without a live replica, and the word for that was any failure's."""

    module = "engine/duplex/session/manager.py"
    function = "DuplexSessionManager._control_error"
    new = """
        if isinstance(error, OmniServiceUnavailableError):
            return "stage_unavailable", str(error), True
    """
    imports = (_UNAVAILABLE,)
    before = """
        def word(error):
            return "failed_precondition", str(error), False
    """
    after = """
        from vllm_omni.errors import OmniServiceUnavailableError


        def word(error):
            if isinstance(error, OmniServiceUnavailableError):
                return "stage_unavailable", str(error), True
            return "failed_precondition", str(error), False
    """


class TurnWithoutAStage(_Stages, InsertStatements):
    """Likewise in a session that is open."""

    module = "engine/duplex/session/model_channel.py"
    function = "ModelChannel.send_runtime_error"
    new = """
        if isinstance(exc, OmniServiceUnavailableError):
            code = "stage_unavailable"
    """
    imports = (_UNAVAILABLE,)
    before = """
        def tell(code, exc):
            emit(code, str(exc))
    """
    after = """
        from vllm_omni.errors import OmniServiceUnavailableError


        def tell(code, exc):
            if isinstance(exc, OmniServiceUnavailableError):
                code = "stage_unavailable"
            emit(code, str(exc))
    """


class DuplexCallStillCaught(_Stages, WidenClause):
    """A call of a duplex session into a dead engine fails the session, with the type that says so."""

    module = "engine/duplex_omni_engine.py"
    function = "DuplexOmniEngine._execute_control"
    clauses = (("TimeoutError", "OmniStageTimeoutError"), ("RuntimeError",))
    clause = ("RuntimeError",)
    added = "VLLMServerError"
    imports = (("vllm.exceptions", "VLLMServerError"),)
    before = """
        def control():
            try:
                return execute()
            except (TimeoutError, OmniStageTimeoutError):
                return None
            except RuntimeError as exc:
                return str(exc)
    """
    after = """
        from vllm.exceptions import VLLMServerError


        def control():
            try:
                return execute()
            except (TimeoutError, OmniStageTimeoutError):
                return None
            except (RuntimeError, VLLMServerError) as exc:
                return str(exc)
    """


# ---- clauses that relied on the raw types ----------------------------------------------------------------------------


class StillFallsBackToThePrompt(_Stages, CatchInstead):
    """An observation without an image still falls back to the image of the prompt; a bug does not."""

    module = "diffusion/models/cosmos3/pipeline_cosmos3.py"
    function = "Cosmos3OmniDiffusersPipeline._build_robolab_policy_inputs"
    clauses = (("ValueError",),)
    clause = ("ValueError",)
    types = "VLLMClientError"
    imports = (_CLIENT,)
    before = """
        def build(observation):
            try:
                return image_of(observation)
            except ValueError:
                return None
    """
    after = """
        from vllm.exceptions import VLLMClientError


        def build(observation):
            try:
                return image_of(observation)
            except VLLMClientError:
                return None
    """


class ChunkFailureStillCaught(_Stages, WidenClause):
    """A chunk that cannot be used still fails its request in the scheduler."""

    module = "distributed/omni_connectors/transfer_adapter/chunk_transfer_adapter.py"
    function = "OmniChunkTransferAdapter._apply_pending_ar_prompt_updates"
    clauses = (("ValueError",),)
    clause = ("ValueError",)
    about = "replaced"
    added = "VLLMClientError"
    imports = (_CLIENT,)
    before = """
        def receive(chunk):
            try:
                replaced = use(chunk)
            except ValueError as exc:
                replaced = record(exc)
            return replaced
    """
    after = """
        from vllm.exceptions import VLLMClientError


        def receive(chunk):
            try:
                replaced = use(chunk)
            except (ValueError, VLLMClientError) as exc:
                replaced = record(exc)
            return replaced
    """


class _NotTheClients(_Stages, StopTranslating):
    """A `ValueError` was made the client's, whatever it was: what the client can cause is typed where it is found."""

    clauses: ClassVar[tuple[tuple[str, ...], ...]] = (("ValueError",),)
    before = """
        def read(payload):
            try:
                found = parse(payload)
            except ValueError as exc:
                raise OmniClientError(str(exc)) from exc
            return found
    """
    after = """
        def read(payload):
            found = parse(payload)
            return found
    """


class LingbotRequest(_NotTheClients):
    __doc__ = _NotTheClients.__doc__
    module = "diffusion/models/lingbot_video/pipeline_lingbot_video.py"
    function = "LingBotVideoPipeline.forward"
    clauses = (("TypeError", "ValueError"),)


class MiniMaxText(_NotTheClients):
    __doc__ = _NotTheClients.__doc__
    module = MINIMAX
    function = "MiniMaxH3Pipeline._extract_text_conditioning"


class MiniMaxVideos(_NotTheClients):
    __doc__ = _NotTheClients.__doc__
    module = MINIMAX
    function = "MiniMaxH3Pipeline._extract_prepared_reference_videos"


class MiniMaxConditioning(_NotTheClients):
    __doc__ = _NotTheClients.__doc__
    module = MINIMAX
    function = "MiniMaxH3Pipeline._extract_encoder_conditioning"


class MiniMaxInputs(_NotTheClients):
    __doc__ = _NotTheClients.__doc__
    module = MINIMAX
    function = "MiniMaxH3Pipeline._prepare_encoder_conditioning_inputs"
    about = "_expose_padded_audio_tail"
    before = """
        def read(payload):
            try:
                found = _expose_padded_audio_tail(payload)
            except ValueError as exc:
                raise OmniClientError(str(exc)) from exc
            return found
    """
    after = """
        def read(payload):
            found = _expose_padded_audio_tail(payload)
            return found
    """


class MiniMaxMedia(_Stages, StopTranslating):
    """The media's error stays the exception that it is, with its status and parameter."""

    module = MINIMAX
    function = "MiniMaxH3Pipeline._encode_local_media"
    clauses = (("ValueError",), ("Exception",))
    keep = (("Exception",),)
    before = """
        def encode(media):
            try:
                error = run(media)
            except ValueError as exc:
                error = OmniClientError(str(exc))
            except Exception as exc:
                error = exc
            return error
    """
    after = """
        def encode(media):
            try:
                error = run(media)
            except Exception as exc:
                error = exc
            return error
    """


class MiniMaxTellsTheOtherRanks(_Stages, ReplaceCall):
    """Whose error it is holds for every client error."""

    module = MINIMAX
    function = "MiniMaxH3Pipeline._encode_local_media"
    callee = "isinstance"
    about = "OmniClientError"
    new = "isinstance($_0, VLLMClientError)"
    imports = (_CLIENT,)
    before = """
        def tell(error):
            return isinstance(error, OmniClientError)
    """
    after = """
        from vllm.exceptions import VLLMClientError


        def tell(error):
            return isinstance(error, VLLMClientError)
    """


class _NotSaidAnyMore(_Stages, ReplaceStatement):
    """The text for the client does not have it any more."""


class OmniGenFormats(_NotSaidAnyMore):
    __doc__ = _NotSaidAnyMore.__doc__
    module = "diffusion/models/omnigen2/pipeline_omnigen2.py"
    function = "OmniGen2ImageProcessor.preprocess"
    targets = ("supported_formats",)
    before = """
        def preprocess(image):
            supported_formats = (Image, Array)
            return image
    """
    after = """
        def preprocess(image):
            return image
    """


class AudioTokens(_NotSaidAnyMore):
    __doc__ = _NotSaidAnyMore.__doc__
    module = "model_executor/models/audio8_tts/prompt_utils.py"
    function = "normalize_text"
    targets = ("tokens",)
    before = """
        def normalize(found):
            tokens = ", ".join(found)
            return found
    """
    after = """
        def normalize(found):
            return found
    """


class FishTokens(_NotSaidAnyMore):
    __doc__ = _NotSaidAnyMore.__doc__
    module = "model_executor/models/fish_speech/prompt_utils.py"
    function = "normalize_fish_speech_text"
    targets = ("disallowed_list",)
    before = """
        def normalize(found):
            disallowed_list = ", ".join(found)
            return found
    """
    after = """
        def normalize(found):
            return found
    """


class MingRequest(_NotSaidAnyMore):
    __doc__ = _NotSaidAnyMore.__doc__
    module = "model_executor/models/ming_tts/patch_emission.py"
    function = "_validate_ming_decode_window"
    targets = ("req_id",)
    before = """
        def validate(info):
            req_id = info.get("id")
            return info
    """
    after = """
        def validate(info):
            return info
    """


class NemotronTimeline(_NotSaidAnyMore):
    __doc__ = _NotSaidAnyMore.__doc__
    module = "model_executor/models/nemotron_voicechat/nemotron_voicechat_thinker.py"
    function = "validate_timeline_fits_max_model_len"
    targets = ("logical_total_len",)
    before = """
        def validate(prompt, frames):
            logical_total_len = prompt + frames
            return prompt
    """
    after = """
        def validate(prompt, frames):
            return prompt
    """


class _ChosenDevice(_Stages, WrapCallee):
    """A device for random numbers that torch does not have in the stage was reported as the server's failure."""

    callee = "torch.Generator"
    wrapper = "on_chosen_device"
    arguments = ", sampling_params.generator_device"
    imports = (("vllm_omni_errors.seams", "on_chosen_device"),)
    before = """
        def start(sampling_params):
            return torch.Generator(sampling_params.generator_device)
    """
    after = """
        from vllm_omni_errors.seams import on_chosen_device


        def start(sampling_params):
            return on_chosen_device(torch.Generator, sampling_params.generator_device)(sampling_params.generator_device)
    """


class GeneratorOfTheRunner(_ChosenDevice):
    __doc__ = _ChosenDevice.__doc__
    module = "diffusion/worker/diffusion_model_runner.py"
    function = "DiffusionModelRunner._initialize_generator"


class GeneratorOfDiffusers(_ChosenDevice):
    __doc__ = _ChosenDevice.__doc__
    module = "diffusion/models/diffusers_adapter/pipeline_diffusers_adapter.py"
    function = "DiffusersAdapterPipeline._build_call_kwargs"
    arguments = ", sampling.generator_device"
    hits = 2
    before = """
        def start(sampling):
            return torch.Generator(sampling.generator_device).manual_seed(sampling.seed)
    """
    after = """
        from vllm_omni_errors.seams import on_chosen_device


        def start(sampling):
            return on_chosen_device(torch.Generator, sampling.generator_device)(sampling.generator_device).manual_seed(
                sampling.seed
            )
    """


STAGES: tuple[type[Rewrite], ...] = tuple(
    found
    for found in list(vars().values())
    if isinstance(found, type) and issubclass(found, Rewrite) and "module" in vars(found)
)
