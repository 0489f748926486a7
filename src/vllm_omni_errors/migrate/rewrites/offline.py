# SPDX-License-Identifier: Apache-2.0
"""Phase `stages`: `Omni` and `AsyncOmni`, which hand errors to the server and to callers in Python."""

from collections.abc import Mapping

from vllm_omni_errors.migrate.rewrite import Rewrite
from vllm_omni_errors.migrate.rewrites.shapes import (
    AfterLoop,
    InsertStatements,
    ReplaceBody,
    ReplaceBranch,
    ReplaceCall,
    ReplaceClause,
    ReplaceStatement,
    StopTranslating,
    TryAround,
)

DECIDED: Mapping[str, tuple[str, ...]] = {}
"""Functions whose decided sites change."""

BASE = "entrypoints/omni_base.py"
ASYNC_BASE = "entrypoints/async_omni_base.py"
ASYNC = "entrypoints/async_omni.py"
OMNI = "entrypoints/omni.py"

_RECEIVED = ("vllm_omni_errors.stage_messages", "received")
_TO_EXCEPTION = ("vllm_omni_errors", "to_exception")


class _Offline(Rewrite):
    phase = "stages"


class FatalMessageIsItsRecord(_Offline, ReplaceCall):
    """The end of a stage reached the caller without what is known of it."""

    module = BASE
    function = "OmniBase._handle_output_message"
    callee = "OmniEngineDeadError"
    new = "to_exception(received(msg))"
    imports = (_RECEIVED, _TO_EXCEPTION)
    before = """
        def handle(msg):
            if msg.fatal:
                raise OmniEngineDeadError(msg.error, error_stage_id=msg.stage_id)
    """
    after = """
        from vllm_omni_errors import to_exception
        from vllm_omni_errors.stage_messages import received


        def handle(msg):
            if msg.fatal:
                raise to_exception(received(msg))
    """


class ErrorMessageIsItsRecord(_Offline, ReplaceBody):
    """Everything but a 4xx became a `RuntimeError`, and a 4xx lost its class, its parameter and its stage."""

    module = BASE
    function = "OmniBase._raise_nonfatal_error_message"
    shape = "538ba442aae4"
    body = "raise to_exception(received(msg))"
    before = '''
        def check(msg):
            """Raise it."""
            raise RuntimeError(msg.error)
    '''
    after = '''
        def check(msg):
            """Raise it."""
            raise to_exception(received(msg))
    '''


class OutputErrorIsItsRecord(_Offline, ReplaceBody):
    """The stage of an output's error was lost, and a 4xx lost its class and its parameter."""

    module = BASE
    function = "OmniBase._check_engine_output_error"
    shape = "d2450738d3aa"
    body = """
        if getattr(result.engine_outputs, "error", None) is None:
            return
        request = self.request_states.get(request_id)
        known_as = getattr(request, "external_request_id", None) or request_id
        details = received(result.engine_outputs, request_id=known_as, stage_id=stage_id)
        if self.errored:
            raise OmniEngineDeadError(stage_id=details.stage_id)
        raise to_exception(details)
    """
    before = """
        def check(self, result, request_id, stage_id):
            if result.engine_outputs.error is not None:
                raise EngineGenerateError(result.engine_outputs.error)
    """
    after = """
        def check(self, result, request_id, stage_id):
            if getattr(result.engine_outputs, "error", None) is None:
                return
            request = self.request_states.get(request_id)
            known_as = getattr(request, "external_request_id", None) or request_id
            details = received(result.engine_outputs, request_id=known_as, stage_id=stage_id)
            if self.errored:
                raise OmniEngineDeadError(stage_id=details.stage_id)
            raise to_exception(details)
    """


class QueuedErrorIsItsRecord(_Offline, ReplaceBranch):
    """An error of one request reaches who waits for it whole, under the id that the request was made with."""

    module = ASYNC_BASE
    function = "AsyncOmniBase._process_orchestrator_results"
    test = "isinstance(result, ErrorMessage)"
    new = "raise to_exception(received(result, request_id=req_state.external_request_id or request_id))"
    imports = (_RECEIVED, _TO_EXCEPTION)
    before = """
        async def process(self, result, req_state, request_id):
            if isinstance(result, ErrorMessage):
                raise RuntimeError(result.error)
    """
    after = """
        from vllm_omni_errors import to_exception
        from vllm_omni_errors.stage_messages import received


        async def process(self, result, req_state, request_id):
            if isinstance(result, ErrorMessage):
                raise to_exception(received(result, request_id=req_state.external_request_id or request_id))
    """


class EveryRequestLearnsWhy(_Offline, ReplaceCall):
    """When the engine ends, each request gets the record of that, not the raw text."""

    module = ASYNC_BASE
    function = "AsyncOmniBase._final_output_handler"
    callee = "ErrorMessage"
    hits = 3
    new = "ErrorMessage.from_exception(e, request_id=$request_id)"
    before = """
        def handle(requests):
            try:
                run()
            except EngineDeadError as e:
                for request in requests:
                    request.put(ErrorMessage(error=str(e), fatal=True, request_id=request.key))
    """
    after = """
        def handle(requests):
            try:
                run()
            except EngineDeadError as e:
                for request in requests:
                    request.put(ErrorMessage.from_exception(e, request_id=request.key))
    """


_INPUT_ERROR = "AsyncOmni._add_streaming_input_request._report_input_error"


class InputErrorIsClassified(_Offline, ReplaceCall):
    """A mistake in a stream of inputs is classified where it happens."""

    module = ASYNC
    function = _INPUT_ERROR
    callee = "ErrorMessage"
    new = "ErrorMessage.from_exception(error, request_id=$request_id)"
    before = """
        def report(error, request):
            return ErrorMessage(request_id=request, error=str(error), status_code=None)
    """
    after = """
        def report(error, request):
            return ErrorMessage.from_exception(error, request_id=request)
    """


class InputErrorIsNotGuessed(_Offline, ReplaceStatement):
    """Status and type stand in the record; a guess from the class is not needed."""

    module = ASYNC
    function = _INPUT_ERROR
    targets = ("status_code, error_type",)
    before = """
        def report(error):
            status_code, error_type = client_error_metadata(error)
            return error
    """
    after = """
        def report(error):
            return error
    """


class LocalErrorHasItsRecord(_Offline, ReplaceStatement):
    """What this process refuses has `.details` like what a stage refuses; who catches it logs it."""

    module = ASYNC
    function = "AsyncOmni.generate"
    call = "logger.info"
    about = "input error"
    new = "carry_details(e, request_id=external_request_id)"
    imports = (("vllm_omni_errors.offline", "carry_details"),)
    before = """
        async def generate(external_request_id):
            try:
                await run()
            except Exception as e:
                logger.info(f"It failed (input error): {e}")
                raise
    """
    after = """
        from vllm_omni_errors.offline import carry_details


        async def generate(external_request_id):
            try:
                await run()
            except Exception as e:
                carry_details(e, request_id=external_request_id)
                raise
    """


class FailedCallIsItsRecord(_Offline, ReplaceCall):
    """A call that failed in a stage fails with the stage's record, not with the repr of its answer."""

    module = ASYNC
    function = "AsyncOmni._engine_core_rpc"
    callee = "RuntimeError"
    new = "call_error(method, result)"
    imports = (("vllm_omni_errors.stage_messages", "call_error"),)
    before = """
        def check(method, result):
            if result.get("error"):
                raise RuntimeError(f"{method} failed: {result}")
    """
    after = """
        from vllm_omni_errors.stage_messages import call_error


        def check(method, result):
            if result.get("error"):
                raise call_error(method, result)
    """


# ---- a batch ---------------------------------------------------------------------------------------------------------

_RUN = "Omni._run_generation"


class EngineStaysOpen(_Offline, StopTranslating):
    """Any exception closed the engine: one refused request in a batch lost all the others, and every later one."""

    module = OMNI
    function = "Omni.generate"
    clauses = (("Exception",),)
    before = """
        def generate(self, prompts):
            try:
                return list(self.run(prompts))
            except Exception:
                self.close()
                raise
    """
    after = """
        def generate(self, prompts):
            return list(self.run(prompts))
    """


class BatchIsCollected(_Offline, ReplaceCall):
    """The exception that ends a batch carries what the other requests gave."""

    module = OMNI
    function = "Omni.generate"
    callee = "list"
    about = "_run_generation"
    new = "collect($_0)"
    imports = (("vllm_omni_errors.offline", "collect"),)
    before = """
        def generate(self, prompts):
            return list(self._run_generation(prompts))
    """
    after = """
        from vllm_omni_errors.offline import collect


        def generate(self, prompts):
            return collect(self._run_generation(prompts))
    """


class BatchRemembersFailures(_Offline, InsertStatements):
    """A request that fails is remembered until the others are done."""

    module = OMNI
    function = _RUN
    after_assignment = "request_ids"
    new = "failures = BatchFailures()"
    imports = (("vllm_omni_errors.offline", "BatchFailures"),)
    before = """
        def run(prompts):
            request_ids = [str(prompt) for prompt in prompts]
            return request_ids
    """
    after = """
        from vllm_omni_errors.offline import BatchFailures


        def run(prompts):
            request_ids = [str(prompt) for prompt in prompts]
            failures = BatchFailures()
            return request_ids
    """


class RefusedPromptIsOneFailure(_Offline, TryAround):
    """A prompt that is refused here ended the batch, and left those before it running in the engine."""

    module = OMNI
    function = _RUN
    call = "self.engine.add_request"
    new = """
        except Exception as exc:
            failures.note_exception(req_id, exc)
            self._log_summary_and_cleanup(req_id)
            continue
    """
    before = """
        def run(self, request_ids, failures):
            for req_id in request_ids:
                self.engine.add_request(req_id)
    """
    after = """
        def run(self, request_ids, failures):
            for req_id in request_ids:
                try:
                    self.engine.add_request(req_id)
                except Exception as exc:
                    failures.note_exception(req_id, exc)
                    self._log_summary_and_cleanup(req_id)
                    continue
    """


class RefusedPromptIsNotAwaited(_Offline, ReplaceStatement):
    """Nothing comes for a prompt that was refused."""

    module = OMNI
    function = _RUN
    targets = ("active_reqs",)
    new = "active_reqs = set(request_ids) - failures.keys()"
    before = """
        def run(request_ids, failures):
            active_reqs = set(request_ids)
            return active_reqs
    """
    after = """
        def run(request_ids, failures):
            active_reqs = set(request_ids) - failures.keys()
            return active_reqs
    """


class FailedRequestIsOneFailure(_Offline, InsertStatements):
    """A request that failed in a stage ended the batch."""

    module = OMNI
    function = _RUN
    after_assignment = "msg"
    new = """
        failed = failures.note(msg)
        if failed is not None:
            active_reqs.discard(failed)
            self._log_summary_and_cleanup(failed)
            continue
    """
    before = """
        def run(self, failures, active_reqs):
            while active_reqs:
                msg = self.engine.try_get_output()
                use(msg)
    """
    after = """
        def run(self, failures, active_reqs):
            while active_reqs:
                msg = self.engine.try_get_output()
                failed = failures.note(msg)
                if failed is not None:
                    active_reqs.discard(failed)
                    self._log_summary_and_cleanup(failed)
                    continue
                use(msg)
    """


class BatchEndsWithTheFirstFailure(_Offline, AfterLoop):
    """When all requests are done, the first that failed is raised."""

    module = OMNI
    function = _RUN
    test = "active_reqs"
    new = "failures.raise_first(request_ids)"
    before = """
        def run(request_ids, failures, active_reqs):
            while active_reqs:
                step()
    """
    after = """
        def run(request_ids, failures, active_reqs):
            while active_reqs:
                step()
            failures.raise_first(request_ids)
    """


class FatalFailureClosesTheEngine(_Offline, ReplaceClause):
    """Only a failure that is fatal closes the engine, in the list form and in the generator alike."""

    module = OMNI
    function = _RUN
    clauses = (("GeneratorExit",), ("Exception",))
    clause = ("Exception",)
    new = """
        except Exception as exc:
            unfinished = list(locals().get("active_reqs", ()))
            for request in unfinished:
                self._record_request_failure_once(request, reason="stage_error")
            if unfinished:
                self.abort(unfinished)
            if self.errored or is_fatal(exc):
                self.close()
            raise
    """
    imports = (("vllm_omni_errors.offline", "is_fatal"),)
    before = """
        def run(self):
            try:
                step()
            except GeneratorExit:
                raise
            except Exception:
                self.abort()
                raise
    """
    after = """
        from vllm_omni_errors.offline import is_fatal


        def run(self):
            try:
                step()
            except GeneratorExit:
                raise
            except Exception as exc:
                unfinished = list(locals().get("active_reqs", ()))
                for request in unfinished:
                    self._record_request_failure_once(request, reason="stage_error")
                if unfinished:
                    self.abort(unfinished)
                if self.errored or is_fatal(exc):
                    self.close()
                raise
    """


OFFLINE: tuple[type[Rewrite], ...] = tuple(
    found
    for found in list(vars().values())
    if isinstance(found, type) and issubclass(found, Rewrite) and "module" in vars(found)
)
