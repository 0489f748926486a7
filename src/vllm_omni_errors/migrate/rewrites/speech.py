# SPDX-License-Identifier: Apache-2.0
"""Phase `requests`: speech, its batches and streams, voices, and generated audio."""

from collections.abc import Mapping

import libcst as cst

from vllm_omni_errors.migrate.rewrite import Rewrite, code
from vllm_omni_errors.migrate.rewrites.shapes import (
    CatchInstead,
    DropErrorChecks,
    InsertStatements,
    RaiseAgain,
    RaiseReturnedCall,
    RaiseReturnedName,
    RaiseReturnedText,
    RemoveFunction,
    ReplaceAnnotation,
    ReplaceBase,
    ReplaceBranch,
    ReplaceClause,
    ReplaceClauses,
    StopTranslating,
    TryAround,
    WidenClause,
    WrapCallee,
    WrapFirstArgument,
)

API_SERVER = "entrypoints/openai/api_server.py"
SERVING = "entrypoints/openai/serving_speech.py"
AUDIO = "entrypoints/openai/serving_audio_generate.py"
PROTOCOL = "entrypoints/openai/protocol/audio.py"
ADAPTERS = "entrypoints/openai/tts_adapters"
CREATE_SPEECH = "OmniOpenAIServingSpeech.create_speech"
CREATE_BATCH = "OmniOpenAIServingSpeech.create_speech_batch"
DIFFUSION_SPEECH = "OmniOpenAIServingSpeech._create_diffusion_speech"
CHUNKS = "OmniOpenAIServingSpeech._generate_audio_chunks"
EVENTS = "OmniOpenAIServingSpeech._generate_audio_sse_events"
CREATE_AUDIO = "OmniOpenAIServingAudioGenerate.create_audio_generate"

REVIEWED: tuple[str, ...] = (
    "create_audio_generate",
    "create_speech",
    "create_speech_batch",
    "delete_voice",
    "list_voices",
    "upload_voice",
)
"""Routes whose own errors are all typed: a raw exception on them is 500."""

_ENGINE = ("EngineGenerateError", "EngineDeadError")
_CANCELLED = ("asyncio.CancelledError",)
_VALUE = ("ValueError", "OmniClientError")  # as phase `bridge` leaves it
_ANY = ("Exception",)


class _Speech(Rewrite):
    phase = "requests"


# ---- clauses that translate ------------------------------------------------------------------------------------------


class _Propagate(_Speech, StopTranslating):
    before = """
        async def route():
            try:
                result = await run()
                return result
            except ValueError as e:
                return respond(str(e))
            except Exception as e:
                raise HTTPException(500, str(e)) from e
    """
    after = """
        async def route():
            result = await run()
            return result
    """


class SpeechRoutePropagates(_Propagate):
    """A client's mistake came out as 500: the route translated every exception."""

    module = API_SERVER
    function = "create_speech"
    clauses = (_ENGINE, _ANY)


class SpeechBatchRoutePropagates(_Propagate):
    """Any `ValueError` of the synthesis was the client's, and any other exception was 500."""

    module = API_SERVER
    function = "create_speech_batch"
    clauses = (_ENGINE, _VALUE, _ANY)


class AudioRoutePropagates(_Propagate):
    """A client's mistake came out as 500: the route translated every exception."""

    module = API_SERVER
    function = "create_audio_generate"
    clauses = (_ENGINE, _ANY)


class UploadVoicePropagates(_Propagate):
    """A voice that could not be stored was the client's mistake, or a 500 that quoted a path."""

    module = API_SERVER
    function = "upload_voice"
    clauses = (("ValueError",), _ANY)


class DeleteVoicePropagates(_Propagate):
    """A voice that could not be deleted was the client's mistake, or a 500 that quoted a path."""

    module = API_SERVER
    function = "delete_voice"
    clauses = (("ValueError",), _ANY)


class _PropagateKeeping(_Propagate):
    keep = (_CANCELLED, _ENGINE)
    before = """
        async def answer():
            try:
                return await run()
            except asyncio.CancelledError:
                return gone()
            except (EngineGenerateError, EngineDeadError):
                raise
            except ValueError as e:
                return respond(e)
            except Exception as e:
                return respond(str(e))
    """
    after = """
        async def answer():
            try:
                return await run()
            except asyncio.CancelledError:
                return gone()
            except (EngineGenerateError, EngineDeadError):
                raise
    """


class SpeechPropagates(_PropagateKeeping):
    """A model without output was 400, and an unforeseen failure a 500 that quoted it."""

    module = SERVING
    function = CREATE_SPEECH
    clauses = (_CANCELLED, _ENGINE, _VALUE, ("TTSGenerationError",), _ANY)


class DiffusionSpeechPropagates(_PropagateKeeping):
    """A model without output was 400, and an unforeseen failure a 500 of a type of its own that quoted it."""

    module = SERVING
    function = DIFFUSION_SPEECH
    clauses = (_CANCELLED, _ENGINE, _VALUE, _ANY)


class AudioPropagates(_PropagateKeeping):
    """Everything was 400, a dead stage too."""

    module = AUDIO
    function = CREATE_AUDIO
    clauses = (_CANCELLED, _VALUE, _ANY)


class _CancelledTravels(_Speech, RaiseAgain):
    clause = _CANCELLED
    before = """
        async def answer():
            try:
                return await run()
            except asyncio.CancelledError:
                log("cancelled")
                return gone()
    """
    after = """
        async def answer():
            try:
                return await run()
            except asyncio.CancelledError:
                log("cancelled")
                raise
    """


class CancelledSpeechTravels(_CancelledTravels):
    """Nobody reads the answer of a cancelled request, and its cancellation went no further."""

    module = SERVING
    function = CREATE_SPEECH
    clauses = (_CANCELLED, _ENGINE)


class CancelledDiffusionSpeechTravels(_CancelledTravels):
    """Nobody reads the answer of a cancelled request, and its cancellation went no further."""

    module = SERVING
    function = DIFFUSION_SPEECH
    clauses = (_CANCELLED, _ENGINE)


class CancelledAudioTravels(_CancelledTravels):
    """Nobody reads the answer of a cancelled request, and its cancellation went no further."""

    module = AUDIO
    function = CREATE_AUDIO
    clauses = (_CANCELLED,)


class IncompleteSpeechIsTheServers(_Speech, ReplaceBase):
    """Unfinished speech is caught by name for a second attempt; after that it is a 500 with its text."""

    module = f"{ADAPTERS}/base.py"
    name = "TTSGenerationError"
    base = "VLLMServerError"
    imports = (("vllm.exceptions", "VLLMServerError"),)
    before = """
        class TTSGenerationError(RuntimeError):
            def __init__(self, message):
                super().__init__(message)
    """
    after = """
        from vllm.exceptions import VLLMServerError


        class TTSGenerationError(VLLMServerError):
            def __init__(self, message):
                super().__init__(message)
    """


# ---- missing handlers ------------------------------------------------------------------------------------------------


class _MissingHandler(_Speech, ReplaceBranch):
    module = API_SERVER
    test = "handler is None"
    imports = (("vllm_omni.errors", "OmniServiceUnavailableError"),)
    new = 'raise OmniServiceUnavailableError("This server\'s model does not serve speech.", permanent=True)'
    before = """
        async def route(request):
            handler = find(request)
            if handler is None:
                return respond("not supported")
            return await handler.run(request)
    """
    after = """
        from vllm_omni.errors import OmniServiceUnavailableError


        async def route(request):
            handler = find(request)
            if handler is None:
                raise OmniServiceUnavailableError("This server's model does not serve speech.", permanent=True)
            return await handler.run(request)
    """


class SpeechHandlerMissing(_MissingHandler):
    """A model that has no speech is 503 and stays so, not an unknown artifact."""

    function = "create_speech"


class SpeechBatchHandlerMissing(_MissingHandler):
    """A model that has no speech is 503 and stays so, not an unknown artifact."""

    function = "create_speech_batch"


class ListVoicesHandlerMissing(_MissingHandler):
    """A model that has no speech is 503 and stays so, not an unknown artifact."""

    function = "list_voices"


class UploadVoiceHandlerMissing(_MissingHandler):
    """A model that has no speech is 503 and stays so, not an unknown artifact."""

    function = "upload_voice"


class DeleteVoiceHandlerMissing(_MissingHandler):
    """A model that has no speech is 503 and stays so, not an unknown artifact."""

    function = "delete_voice"


class AudioHandlerMissing(_MissingHandler):
    """A model that generates no audio is 503 and stays so, not an unknown artifact."""

    function = "create_audio_generate"
    new = _MissingHandler.new.replace("serve speech", "generate audio")
    after = _MissingHandler.after.replace("serve speech", "generate audio")


# ---- returned error responses ---------------------------------------------------------------------------------------


class _DropRouteCheck(_Speech, DropErrorChecks):
    module = API_SERVER
    before = """
        async def route(handler):
            result = await handler.run()
            if isinstance(result, ErrorResponse):
                return respond(result)
            return result
    """
    after = """
        async def route(handler):
            result = await handler.run()
            return result
    """


class SpeechHandlerRaises(_DropRouteCheck):
    """The handler raises."""

    function = "create_speech"


class SpeechBatchHandlerRaises(_DropRouteCheck):
    """The handler raises."""

    function = "create_speech_batch"


class AudioHandlerRaises(_DropRouteCheck):
    """The handler raises."""

    function = "create_audio_generate"


class _ModelCheckRaises(_Speech, RaiseReturnedName):
    name = "error_check_ret"
    before = """
        async def answer(self, request):
            error_check_ret = await self._check_model(request)
            if error_check_ret is not None:
                return error_check_ret
            return await self.run(request)
    """
    after = """
        from vllm_omni_errors.seams import response_error


        async def answer(self, request):
            error_check_ret = await self._check_model(request)
            if error_check_ret is not None:
                raise response_error(error_check_ret)
            return await self.run(request)
    """


class SpeechModelCheckRaises(_ModelCheckRaises):
    """What the inherited check of the model returned as an error is rendered at the boundary."""

    module = SERVING
    function = CREATE_SPEECH


class SpeechBatchModelCheckRaises(_ModelCheckRaises):
    """What the inherited check of the model returned as an error is rendered at the boundary."""

    module = SERVING
    function = CREATE_BATCH


class AudioModelCheckRaises(_ModelCheckRaises):
    """What the inherited check of the model returned as an error is rendered at the boundary."""

    module = AUDIO
    function = CREATE_AUDIO


class UploadVoiceRaises(_Speech, RaiseReturnedCall):
    """Two samples, or none, were answered by hand, without the parameter."""

    module = API_SERVER
    function = "upload_voice"
    callee = "_create_speech_error_json_response"
    exception = "VLLMValidationError"
    arguments = ', parameter="audio_sample"'
    hits = 2
    imports = (("vllm.exceptions", "VLLMValidationError"),)
    before = """
        def upload(audio_sample):
            if audio_sample is None:
                return _create_speech_error_json_response("audio_sample is required.")
            return store(audio_sample)
    """
    after = """
        from vllm.exceptions import VLLMValidationError


        def upload(audio_sample):
            if audio_sample is None:
                raise VLLMValidationError("audio_sample is required.", parameter="audio_sample")
            return store(audio_sample)
    """


class UnknownVoiceIsNotFound(_Speech, ReplaceBranch):
    """An unknown voice was answered by hand, with the name that the client sent."""

    module = API_SERVER
    function = "delete_voice"
    test = "not success"
    imports = (("vllm.exceptions", "VLLMNotFoundError"),)
    new = 'raise VLLMNotFoundError("The voice does not exist; GET /v1/audio/voices lists the uploaded voices.")'
    before = """
        async def delete(handler, name):
            success = await handler.delete(name)
            if not success:
                return respond(f"no {name}", 404)
            return name
    """
    after = """
        from vllm.exceptions import VLLMNotFoundError


        async def delete(handler, name):
            success = await handler.delete(name)
            if not success:
                raise VLLMNotFoundError("The voice does not exist; GET /v1/audio/voices lists the uploaded voices.")
            return name
    """


class WrongReferenceFormatRaises(_Speech, ReplaceBranch):
    """A reference that is no URI was answered by hand, without the parameter."""

    module = SERVING
    function = DIFFUSION_SPEECH
    test = "fmt_err"
    imports = (("vllm.exceptions", "VLLMValidationError"),)
    new = 'raise VLLMValidationError(fmt_err, parameter="ref_audio")'
    before = """
        def check(self, request):
            fmt_err = self.validate(request.ref_audio)
            if fmt_err:
                return respond(fmt_err, 400)
            return request.ref_audio
    """
    after = """
        from vllm.exceptions import VLLMValidationError


        def check(self, request):
            fmt_err = self.validate(request.ref_audio)
            if fmt_err:
                raise VLLMValidationError(fmt_err, parameter="ref_audio")
            return request.ref_audio
    """


class StreamingChecksReturnTheFormat(_Speech):
    """The check of a streamed request raises, and returns nothing but the format."""

    module = SERVING
    function = "OmniOpenAIServingSpeech._validate_speech_streaming_request"
    before = """
        def check(request) -> tuple[str, Response | None]:
            response_format = request.response_format
            return response_format, None
    """
    after = """
        def check(request) -> str:
            response_format = request.response_format
            return response_format
    """

    def leave_Return(self, original_node: cst.Return, updated_node: cst.Return) -> cst.Return:
        if not self.inside() or not isinstance(updated_node.value, cst.Tuple):
            return updated_node
        self.found += 1
        return updated_node.with_changes(value=updated_node.value.elements[0].value)

    def on_function(self, original: cst.FunctionDef, updated: cst.FunctionDef) -> cst.FunctionDef:
        return updated.with_changes(returns=cst.Annotation(cst.Name("str")))


class StreamingChecksRaise(_Speech):
    """What the check of a streamed request returns is the format alone."""

    module = SERVING
    function = CREATE_SPEECH
    hits = 2
    before = """
        def stream(self, request):
            response_format, error = self.check(request)
            return response_format
    """
    after = """
        def stream(self, request):
            response_format = self.check(request)
            return response_format
    """

    def leave_AssignTarget(self, original_node: cst.AssignTarget, updated_node: cst.AssignTarget) -> cst.AssignTarget:
        if not self.inside() or code(original_node.target) != "response_format, error":
            return updated_node
        self.found += 1
        return updated_node.with_changes(target=cst.Name("response_format"))


class StreamingChecksDropped(_Speech, ReplaceBranch):
    """The check of a streamed request raises."""

    module = SERVING
    function = CREATE_SPEECH
    test = "error is not None"
    hits = 2
    before = """
        def stream(self, request):
            format, error = self.check(request)
            if error is not None:
                return error
            return format
    """
    after = """
        def stream(self, request):
            format, error = self.check(request)
            return format
    """


class HandmadeResponseGoes(_Speech, RemoveFunction):
    """A renderer of its own, with a type of its own, that nothing calls any more."""

    module = SERVING
    function = "OmniOpenAIServingSpeech._diffusion_error_response"
    before = """
        class Speech:
            def respond(message):
                return Response(message)

            def speak(self):
                return self.run()
    """
    after = """
        class Speech:
            def speak(self):
                return self.run()
    """


# ---- batches ---------------------------------------------------------------------------------------------------------


class BatchItemErrorIsAnObject(_Speech, ReplaceAnnotation):
    """A failed item had a text for an error, without a type and a status."""

    module = PROTOCOL
    function = "SpeechBatchItemResult"
    field = "error"
    annotation = "dict[str, Any] | None"
    before = """
        class Item:
            index: int
            error: str | None = None
    """
    after = """
        class Item:
            index: int
            error: dict[str, Any] | None = None
    """


_WRONG_ITEM = (
    "The speech item is not valid for this model. Check input, voice, language, task_type, instructions, ref_audio, "
    "ref_text, speaker_embedding, max_new_tokens and extra_params."
)


class BatchItemIsWrong(_Speech, ReplaceBranch):
    """An item that the model's adapter rejects is the client's, and said so in a text that quotes the item."""

    module = SERVING
    function = f"{CREATE_BATCH}._run_item"
    test = "validation_error is not None"
    imports = (("vllm.exceptions", "VLLMValidationError"),)
    new = f"""
        raise VLLMValidationError(
            "{_WRONG_ITEM[:100]}"
            "{_WRONG_ITEM[100:]}",
            parameter="items",
        )
    """
    before = """
        def run(self, item):
            validation_error = self.validate(item)
            if validation_error is not None:
                return Result(error=validation_error)
            return self.speak(item)
    """
    after = f"""
        from vllm.exceptions import VLLMValidationError


        def run(self, item):
            validation_error = self.validate(item)
            if validation_error is not None:
                raise VLLMValidationError(
                    "{_WRONG_ITEM[:100]}"
                    "{_WRONG_ITEM[100:]}",
                    parameter="items",
                )
            return self.speak(item)
    """


class BatchItemPropagates(_Speech, StopTranslating):
    """What an item raises is kept as it is, until it is known whether the others failed too."""

    module = SERVING
    function = f"{CREATE_BATCH}._run_item"
    clauses = (_ANY,)
    before = """
        async def run(item):
            try:
                audio = await speak(item)
            except Exception as e:
                return Result(error=str(e))
            return Result(audio=audio)
    """
    after = """
        async def run(item):
            audio = await speak(item)
            return Result(audio=audio)
    """


class BatchOfFailuresFails(_Speech, InsertStatements):
    """A batch of which every item failed was a success."""

    module = SERVING
    function = CREATE_BATCH
    after_assignment = "results"
    imports = (("vllm_omni_errors.transports.batch", "raise_if_all_failed"),)
    new = "raise_if_all_failed(results)"
    before = """
        async def answer(items):
            results = await gather(items)
            return results
    """
    after = """
        from vllm_omni_errors.transports.batch import raise_if_all_failed


        async def answer(items):
            results = await gather(items)
            raise_if_all_failed(results)
            return results
    """


class BatchItemError(_Speech, ReplaceBranch):
    """A failed item carries the canonical error object instead of the raw text of the exception."""

    module = SERVING
    function = CREATE_BATCH
    test = "isinstance(r, BaseException)"
    imports = (("vllm_omni_errors.transports.batch", "item_error"),)
    new = 'final_results.append(SpeechBatchItemResult(index=i, status="error", error=item_error(r)))'
    before = """
        def collect(results):
            for i, r in enumerate(results):
                if isinstance(r, BaseException):
                    final_results.append(str(r))
                else:
                    final_results.append(r)
    """
    after = """
        from vllm_omni_errors.transports.batch import item_error


        def collect(results):
            for i, r in enumerate(results):
                if isinstance(r, BaseException):
                    final_results.append(SpeechBatchItemResult(index=i, status="error", error=item_error(r)))
                else:
                    final_results.append(r)
    """


class BatchItemsSeam(_Speech, WrapCallee):
    """An item becomes a request of its own, whose validation raises pydantic's error for the client's mistakes."""

    module = SERVING
    function = CREATE_BATCH
    callee = "self._merge_batch_item"
    wrapper = "reads_request"
    arguments = ', parameter="items"'
    imports = (("vllm_omni_errors.seams", "reads_request"),)
    before = """
        def merge(self, batch):
            return [self._merge_batch_item(batch, item) for item in batch.items]
    """
    after = """
        from vllm_omni_errors.seams import reads_request


        def merge(self, batch):
            return [reads_request(self._merge_batch_item, parameter="items")(batch, item) for item in batch.items]
    """


# ---- streams ---------------------------------------------------------------------------------------------------------


class SpeechStreamsAreStarted(_Speech, WrapFirstArgument):
    """A failure before the first byte was a success that broke off, or held nothing but an error."""

    module = SERVING
    function = CREATE_SPEECH
    callee = "_SpeechStreamingResponse"
    wrapper = "await started"
    hits = 2
    imports = (("vllm_omni_errors.transports.stream", "started"),)
    before = """
        async def answer(self):
            return _SpeechStreamingResponse(self.speak(), media_type="audio/pcm")
    """
    after = """
        from vllm_omni_errors.transports.stream import started


        async def answer(self):
            return _SpeechStreamingResponse(await started(self.speak()), media_type="audio/pcm")
    """


class SpeechEventsEndInTheError(_Speech, ReplaceClauses):
    """The last event made a server error of every failure and quoted it; before the first byte it is an HTTP error."""

    module = SERVING
    function = EVENTS
    clauses = (_CANCELLED, _ANY)
    imports = (
        ("vllm_omni_errors.transports.request", "handled"),
        ("vllm_omni_errors.transports.sse", "typed_error"),
    )
    new = """
        except Exception as e:
            if not emitted_audio:
                raise
            yield typed_error(handled(e, "sse"), "speech.audio.error")
    """
    before = """
        async def events():
            emitted_audio = False
            try:
                yield "audio"
                emitted_audio = True
            except asyncio.CancelledError:
                raise
            except Exception as e:
                yield str(e)
    """
    after = """
        from vllm_omni_errors.transports.request import handled
        from vllm_omni_errors.transports.sse import typed_error


        async def events():
            emitted_audio = False
            try:
                yield "audio"
                emitted_audio = True
            except Exception as e:
                if not emitted_audio:
                    raise
                yield typed_error(handled(e, "sse"), "speech.audio.error")
    """


class SpeechFailureIsLoggedOnce(_Speech, ReplaceClause):
    """A failed stream was logged twice with its traceback, a client's mistake too; the boundary logs it."""

    module = SERVING
    function = CHUNKS
    clauses = (("GeneratorExit",), _CANCELLED, ("EngineDeadError",), _ANY)
    clause = _ANY
    new = 'except Exception:\n    record_stream_abort("error")\n    raise'
    before = """
        async def chunks():
            try:
                yield b"audio"
            except GeneratorExit:
                raise
            except Exception as e:
                log(e)
                raise
    """
    after = """
        async def chunks():
            try:
                yield b"audio"
            except GeneratorExit:
                raise
            except Exception:
                record_stream_abort("error")
                raise
    """


class NoAudioInStream(_Speech, InsertStatements):
    """A stream without audio was a success."""

    module = SERVING
    function = CHUNKS
    before_call = "self._mark_ref_audio_artifact_ready_for_request"
    imports = (("vllm.exceptions", "VLLMServerError"),)
    new = """
        if last_audio_result is None:
            raise VLLMServerError("The model produced no audio.")
    """
    before = """
        async def chunks(self, request_id):
            last_audio_result = None
            self._mark_ref_audio_artifact_ready_for_request(request_id)
    """
    after = """
        from vllm.exceptions import VLLMServerError


        async def chunks(self, request_id):
            last_audio_result = None
            if last_audio_result is None:
                raise VLLMServerError("The model produced no audio.")
            self._mark_ref_audio_artifact_ready_for_request(request_id)
    """


# ---- what a route must know or check itself --------------------------------------------------------------------------


class _Accepted(_Speech, InsertStatements):
    after_assignment = "request_id"
    imports = (("vllm_omni_errors.transports.request", "accepted"),)
    new = "accepted(request_id)"
    before = """
        async def answer(request):
            request_id = new_id()
            return await run(request, request_id)
    """
    after = """
        from vllm_omni_errors.transports.request import accepted


        async def answer(request):
            request_id = new_id()
            accepted(request_id)
            return await run(request, request_id)
    """


class DiffusionSpeechAccepted(_Accepted):
    """Errors carried no request id: the route did not know it."""

    module = SERVING
    function = DIFFUSION_SPEECH


class SpeechBatchAccepted(_Accepted):
    """Errors carried no request id: the route did not know it."""

    module = SERVING
    function = CREATE_BATCH
    after_assignment = "batch_id"
    new = "accepted(batch_id)"
    before = _Accepted.before.replace("request_id", "batch_id")
    after = _Accepted.after.replace("request_id", "batch_id")


class AudioAccepted(_Accepted):
    """Errors carried no request id: the route did not know it."""

    module = AUDIO
    function = CREATE_AUDIO


_KNOWS_ITS_MODEL = """
    if self.diffusion_mode and request.model and raw_request is not None:
        served = {path.name for path in raw_request.app.state.openai_serving_models.base_model_paths}
        if request.model not in served:
            raise VLLMNotFoundError(f"The model does not exist; this server serves '{self.model_name}'.")
"""


def _of_speech(text: str) -> str:
    """The same, with the names that the class of speech has for it."""
    names = {
        "self.diffusion": "self._diffusion",
        "self.model": "self._diffusion_model",
        "error_check_ret": "sample_rate_error",
    }
    for name, other in names.items():
        text = text.replace(name, other)
    return text


class DiffusionAudioKnowsItsModel(_Speech, InsertStatements):
    """The inherited check fails on a diffusion-only server: a model that it does not have was a 500."""

    module = AUDIO
    function = CREATE_AUDIO
    before_assignment = "error_check_ret"
    imports = (("vllm.exceptions", "VLLMNotFoundError"),)
    new = _KNOWS_ITS_MODEL
    before = """
        class Audio:
            async def answer(self, request, raw_request):
                error_check_ret = await self.check(request)
                return await self.run(request, error_check_ret)
    """
    after = """
        from vllm.exceptions import VLLMNotFoundError


        class Audio:
            async def answer(self, request, raw_request):
                if self.diffusion_mode and request.model and raw_request is not None:
                    served = {path.name for path in raw_request.app.state.openai_serving_models.base_model_paths}
                    if request.model not in served:
                        raise VLLMNotFoundError(f"The model does not exist; this server serves '{self.model_name}'.")
                error_check_ret = await self.check(request)
                return await self.run(request, error_check_ret)
    """


class DiffusionSpeechKnowsItsModel(DiffusionAudioKnowsItsModel):
    """A diffusion-only server spoke for any model, also for one that it does not have."""

    module = SERVING
    function = CREATE_SPEECH
    before_assignment = "sample_rate_error"
    new = _of_speech(DiffusionAudioKnowsItsModel.new)
    before = _of_speech(DiffusionAudioKnowsItsModel.before)
    after = _of_speech(DiffusionAudioKnowsItsModel.after)


class DiffusionNumbersMayBeInfinite(_Speech, WidenClause):
    """JSON as Python reads it has infinite numbers, whose conversion raises another type."""

    module = SERVING
    function = DIFFUSION_SPEECH
    clauses = (("TypeError", "ValueError"),)
    clause = ("TypeError", "ValueError")
    added = "OverflowError"
    hits = 2
    before = """
        def read(value):
            try:
                return int(value)
            except (TypeError, ValueError) as exc:
                raise wrong(value) from exc
    """
    after = """
        def read(value):
            try:
                return int(value)
            except (TypeError, ValueError, OverflowError) as exc:
                raise wrong(value) from exc
    """


_NO_SUCH_VOICE = (
    'raise VLLMNotFoundError("The voice is not available; GET /v1/audio/voices lists the available voices.")'
)


class _UnknownVoice(_Speech, RaiseReturnedText):
    imports = (("vllm.exceptions", "VLLMNotFoundError"),)
    new = _NO_SUCH_VOICE
    before = """
        def validate(request, voices):
            if request.voice not in voices:
                return f"{REQUEST}: there are only {VOICES}"
            return None
    """
    after = f"""
        from vllm.exceptions import VLLMNotFoundError


        def validate(request, voices):
            if request.voice not in voices:
                {_NO_SUCH_VOICE}
            return None
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        voice, others = cls.shown
        cls.before = _UnknownVoice.before.replace("REQUEST", voice).replace("VOICES", others)


class UnknownQwenVoice(_UnknownVoice):
    """An unknown voice is not found, as an unknown model is."""

    module = f"{ADAPTERS}/qwen3_tts.py"
    function = "Qwen3TTSAdapter.validate"
    shown = ("request.voice", "', '.join(sorted(available_speakers))")


class UnknownVoxtralVoice(_UnknownVoice):
    """An unknown voice is not found, as an unknown model is."""

    module = f"{ADAPTERS}/voxtral.py"
    function = "VoxtralTTSAdapter.validate"
    shown = ("request.voice", "', '.join(sorted(available_speakers))")


class UnknownVoxCPMVoice(_UnknownVoice):
    """An unknown voice is not found, as an unknown model is."""

    module = f"{ADAPTERS}/voxcpm2.py"
    function = "VoxCPM2Adapter.validate"
    shown = ("request.voice", "supported")


class UnknownGepardVoice(_UnknownVoice):
    """An unknown voice is not found, as an unknown model is."""

    module = f"{ADAPTERS}/gepard.py"
    function = "GepardAdapter.validate"
    shown = ("request.voice", "_DEFAULT_VOICE")


class UnknownUploadedVoice(_UnknownVoice):
    """An unknown voice is not found, as an unknown model is."""

    module = SERVING
    function = "OmniOpenAIServingSpeech._apply_uploaded_speaker"
    shown = ("request.voice", "label")


# ---- the server's own audio ------------------------------------------------------------------------------------------


class StepAudioPropagates(_Propagate):
    """A step whose output could not be read was left out of audio that was answered as a success."""

    module = SERVING
    function = "OmniOpenAIServingSpeech._generate_audio_bytes"
    clauses = (_ANY,)
    about = "step_audio, step_key"
    before = """
        def collect(results):
            for result in results:
                try:
                    step_audio, step_key = extract(result)
                except Exception:
                    continue
                chunks.append(step_audio[step_key])
    """
    after = """
        def collect(results):
            for result in results:
                step_audio, step_key = extract(result)
                chunks.append(step_audio[step_key])
    """


class SpeedPropagates(_Propagate):
    """A failure to stretch the model's audio was hidden behind another error, which counted as the client's."""

    module = "entrypoints/openai/audio_utils_mixin.py"
    function = "AudioMixin._apply_speed_adjustment"
    clauses = (_ANY,)


class CovoTokenizerPropagates(_Propagate):
    """A failure to load the tokenizer was hidden behind another server error, which quotes a path."""

    module = f"{ADAPTERS}/covo_audio.py"
    function = "CovoAudioAdapter.build"
    clauses = (_ANY,)


# ---- reference audio and voices --------------------------------------------------------------------------------------


class ReferenceAudioSeam(_Speech, TryAround):
    """Audio that cannot be had or read is 422, a source that fails for the moment is 500; neither quotes the URL."""

    module = SERVING
    function = "OmniOpenAIServingSpeech._resolve_ref_audio_array"
    assignment = "wav_np, fetched_sr"
    imports = (("vllm_omni_errors.media", "media_error"),)
    new = 'except Exception as e:\n    raise media_error(e, parameter="ref_audio") from e'
    before = """
        async def resolve(self, url):
            wav_np, fetched_sr = await self.fetch(url)
            return wav_np, fetched_sr
    """
    after = """
        from vllm_omni_errors.media import media_error


        async def resolve(self, url):
            try:
                wav_np, fetched_sr = await self.fetch(url)
            except Exception as e:
                raise media_error(e, parameter="ref_audio") from e
            return wav_np, fetched_sr
    """


class ReferenceUrlSeam(_Speech, TryAround):
    """A URL that cannot be parsed raised a raw error of Python's."""

    module = SERVING
    function = "OmniOpenAIServingSpeech._validate_ref_audio_format"
    assignment = "scheme"
    imports = (("vllm.exceptions", "VLLMUnprocessableEntityError"),)
    new = """
        except ValueError as e:
            raise VLLMUnprocessableEntityError("The media's URL is not valid.", parameter="ref_audio") from e
    """
    before = """
        def validate(url):
            scheme = urlparse(url).scheme
            return scheme in SCHEMES
    """
    after = """
        from vllm.exceptions import VLLMUnprocessableEntityError


        def validate(url):
            try:
                scheme = urlparse(url).scheme
            except ValueError as e:
                raise VLLMUnprocessableEntityError("The media's URL is not valid.", parameter="ref_audio") from e
            return scheme in SCHEMES
    """


class ReferenceUrlIsFetchedAnyway(_Speech, WidenClause):
    """What is no path has no modification time; whether it can be fetched is decided where it is fetched."""

    module = SERVING
    function = "OmniOpenAIServingSpeech._get_ref_audio_cache_key"
    clauses = (("OSError",),)
    clause = ("OSError",)
    added = "ValueError"
    before = """
        def key(url):
            try:
                path = path_of(url)
            except OSError as exc:
                path = None
            return path
    """
    after = """
        def key(url):
            try:
                path = path_of(url)
            except (OSError, ValueError) as exc:
                path = None
            return path
    """


class NoLocalReferenceAudio(_Speech, InsertStatements):
    """A server that may not read local files said so with a `RuntimeError`, which is the client's all the same."""

    module = SERVING
    function = "OmniOpenAIServingSpeech._resolve_ref_audio_array"
    before_assignment = "fetch_start_s"
    imports = (("vllm.exceptions", "VLLMUnprocessableEntityError"),)
    new = """
        if ref_audio_str.lower().startswith("file:") and not self._media_connector.allowed_local_media_path:
            raise VLLMUnprocessableEntityError("This server does not read local files.", parameter="ref_audio")
    """
    before = """
        async def resolve(self, ref_audio_str):
            fetch_start_s = now()
            return await self.fetch(ref_audio_str), fetch_start_s
    """
    after = """
        from vllm.exceptions import VLLMUnprocessableEntityError


        async def resolve(self, ref_audio_str):
            if ref_audio_str.lower().startswith("file:") and not self._media_connector.allowed_local_media_path:
                raise VLLMUnprocessableEntityError("This server does not read local files.", parameter="ref_audio")
            fetch_start_s = now()
            return await self.fetch(ref_audio_str), fetch_start_s
    """


class UploadDecodes(_Speech, CatchInstead):
    """Only what the decoder raises says that an upload is no audio; anything else is the server's."""

    module = SERVING
    function = "OmniOpenAIServingSpeech.upload_voice"
    clauses = (_ANY,)
    about = "wav_np, sr"
    clause = _ANY
    types = "sf.SoundFileError"
    before = """
        def decode(content):
            try:
                wav_np, sr = sf.read(content)
            except Exception as e:
                raise wrong(content) from e
            return wav_np, sr
    """
    after = """
        def decode(content):
            try:
                wav_np, sr = sf.read(content)
            except sf.SoundFileError as e:
                raise wrong(content) from e
            return wav_np, sr
    """


class _StoragePropagates(_Speech, StopTranslating):
    module = SERVING
    clauses = (_ANY,)
    before = """
        def store(audio):
            try:
                save_file(audio)
            except Exception as e:
                raise ValueError(f"cannot save: {e}")
    """
    after = """
        def store(audio):
            save_file(audio)
    """


class UploadStorePropagates(_StoragePropagates):
    """A voice that the server could not write was the client's mistake, with the path in its text."""

    function = "OmniOpenAIServingSpeech.upload_voice"
    about = "save_file"


class StoredVoicePropagates(_StoragePropagates):
    """A stored voice that could not be read became the client's mistake of naming a voice that is missing."""

    function = "OmniOpenAIServingSpeech._load_uploaded_audio"


class StoredVoiceEncodingPropagates(_StoragePropagates):
    """A stored voice that could not be encoded became the client's mistake of naming a voice that is missing."""

    function = "OmniOpenAIServingSpeech._get_uploaded_audio_data"


class StoredEmbeddingPropagates(_StoragePropagates):
    """A stored voice that could not be read became the client's mistake of naming a voice that is missing."""

    function = "OmniOpenAIServingSpeech._get_uploaded_speaker_embedding"


class StoredVoiceMissing(_Speech, ReplaceBranch):
    """A voice whose file is gone is the server's failure, not a voice that the client may not use."""

    module = SERVING
    function = "OmniOpenAIServingSpeech._apply_uploaded_speaker"
    test = "not audio_data"
    imports = (("vllm.exceptions", "VLLMServerError"),)
    new = 'raise VLLMServerError("The stored audio of the voice is missing.")'
    before = """
        def apply(self, voice):
            audio_data = self.load(voice)
            if not audio_data:
                return f"no audio for {voice}"
            return None
    """
    after = """
        from vllm.exceptions import VLLMServerError


        def apply(self, voice):
            audio_data = self.load(voice)
            if not audio_data:
                raise VLLMServerError("The stored audio of the voice is missing.")
            return None
    """


class _FileNameFits(_Speech, InsertStatements):
    module = SERVING
    after_assignment = "filename"
    imports = (("vllm.exceptions", "VLLMValidationError"),)
    new = """
        if len(filename) > 255:
            raise VLLMValidationError("name and consent are too long.", parameter="name")
    """
    before = """
        def store(name, consent):
            filename = f"{name}_{consent}"
            return save(filename)
    """
    after = """
        from vllm.exceptions import VLLMValidationError


        def store(name, consent):
            filename = f"{name}_{consent}"
            if len(filename) > 255:
                raise VLLMValidationError("name and consent are too long.", parameter="name")
            return save(filename)
    """


class VoiceFileNameFits(_FileNameFits):
    """A file name is made of two of the client's, which together may be longer than a file name can be."""

    function = "OmniOpenAIServingSpeech.upload_voice"


class EmbeddingFileNameFits(_FileNameFits):
    """A file name is made of two of the client's, which together may be longer than a file name can be."""

    function = "OmniOpenAIServingSpeech.upload_voice_embedding"


class EmbeddingIsReadWhole(_Speech, WidenClause):
    """JSON that is nested too deep raises another type than JSON that is none."""

    module = SERVING
    function = "OmniOpenAIServingSpeech.upload_voice_embedding"
    clauses = (("json.JSONDecodeError", "TypeError"),)
    clause = ("json.JSONDecodeError", "TypeError")
    added = "RecursionError"
    before = """
        def read(text):
            try:
                return json.loads(text)
            except (json.JSONDecodeError, TypeError) as exc:
                raise wrong(text) from exc
    """
    after = """
        def read(text):
            try:
                return json.loads(text)
            except (json.JSONDecodeError, TypeError, RecursionError) as exc:
                raise wrong(text) from exc
    """


class EmbeddingNumbersSeam(_Speech, WrapCallee):
    """An integer of some hundred digits is a number, but none that a float can hold."""

    module = SERVING
    function = "OmniOpenAIServingSpeech.upload_voice_embedding"
    callee = "math.isfinite"
    wrapper = "reads_request"
    arguments = ', parameter="speaker_embedding"'
    imports = (("vllm_omni_errors.seams", "reads_request"),)
    before = """
        def check(numbers):
            return all(math.isfinite(number) for number in numbers)
    """
    after = """
        from vllm_omni_errors.seams import reads_request


        def check(numbers):
            return all(reads_request(math.isfinite, parameter="speaker_embedding")(number) for number in numbers)
    """


# ---- raise sites and returned responses, as reviewed ----------------------------------------------------------------

DECIDED: Mapping[str, tuple[str, ...]] = {
    API_SERVER: ("_reject_process_local_state_with_multiple_api_workers",),
    SERVING: ("*",),
    AUDIO: ("*",),
    PROTOCOL: ("_normalize_ref_audio_value", "_normalize_speaker_embedding_value"),
    **{
        f"{ADAPTERS}/{name}.py": ("*",)
        for name in ("breeze_tts_2", "glm_tts", "ming_tts", "minimax_music3", "voxcpm2", "voxtral")
    },
}
"""Functions whose decided sites change."""

SPEECH: tuple[type[Rewrite], ...] = (
    SpeechRoutePropagates,
    SpeechBatchRoutePropagates,
    AudioRoutePropagates,
    UploadVoicePropagates,
    DeleteVoicePropagates,
    SpeechHandlerMissing,
    SpeechBatchHandlerMissing,
    ListVoicesHandlerMissing,
    UploadVoiceHandlerMissing,
    DeleteVoiceHandlerMissing,
    AudioHandlerMissing,
    SpeechHandlerRaises,
    SpeechBatchHandlerRaises,
    AudioHandlerRaises,
    UploadVoiceRaises,
    UnknownVoiceIsNotFound,
    SpeechPropagates,
    DiffusionSpeechPropagates,
    AudioPropagates,
    CancelledSpeechTravels,
    CancelledDiffusionSpeechTravels,
    CancelledAudioTravels,
    IncompleteSpeechIsTheServers,
    SpeechModelCheckRaises,
    SpeechBatchModelCheckRaises,
    AudioModelCheckRaises,
    WrongReferenceFormatRaises,
    StreamingChecksReturnTheFormat,
    StreamingChecksRaise,
    StreamingChecksDropped,
    HandmadeResponseGoes,
    BatchItemErrorIsAnObject,
    BatchItemIsWrong,
    BatchItemPropagates,
    BatchOfFailuresFails,
    BatchItemError,
    BatchItemsSeam,
    SpeechStreamsAreStarted,
    SpeechEventsEndInTheError,
    SpeechFailureIsLoggedOnce,
    NoAudioInStream,
    DiffusionSpeechAccepted,
    SpeechBatchAccepted,
    AudioAccepted,
    DiffusionSpeechKnowsItsModel,
    DiffusionAudioKnowsItsModel,
    DiffusionNumbersMayBeInfinite,
    UnknownQwenVoice,
    UnknownVoxtralVoice,
    UnknownVoxCPMVoice,
    UnknownGepardVoice,
    UnknownUploadedVoice,
    StepAudioPropagates,
    SpeedPropagates,
    CovoTokenizerPropagates,
    ReferenceUrlSeam,
    ReferenceUrlIsFetchedAnyway,
    ReferenceAudioSeam,
    NoLocalReferenceAudio,
    UploadDecodes,
    UploadStorePropagates,
    StoredVoicePropagates,
    StoredVoiceEncodingPropagates,
    StoredEmbeddingPropagates,
    StoredVoiceMissing,
    VoiceFileNameFits,
    EmbeddingFileNameFits,
    EmbeddingIsReadWhole,
    EmbeddingNumbersSeam,
)
