# SPDX-License-Identifier: Apache-2.0
"""Phase `finalize`: no raw exception is taken for the client's any more, but where vLLM's code reads the request.

Each call of such code is a seam, reviewed for one version of vLLM (ledgers/upstream-…), and converts right there.
"""

from collections.abc import Mapping

from vllm_omni_errors.ledgers import folder
from vllm_omni_errors.migrate.rewrite import Rewrite
from vllm_omni_errors.migrate.rewrites.shapes import (
    RemoveDefinitions,
    ReplaceCall,
    ReplaceKeyword,
    StopTranslating,
    TryAround,
    WrapCallee,
)

LEDGER = folder("vllm-omni-0.30.0")
"""The decisions that the rewrites carry out."""

VLLM = "0.30.0"
"""The version whose seams they convert."""

CHAT = "entrypoints/openai/serving_chat.py"
CREATE_CHAT = "OmniOpenAIServingChat._create_chat_completion"
PREPROCESS = "OmniOpenAIServingChat._preprocess_chat"
DEFERRED = "OmniOpenAIServingChat._materialize_deferred_multimodal_parts"
_RAW_OF_A_RENDERER = ("ValueError", "TypeError", "OverflowError")


class _Finalize(Rewrite):
    phase = "finalize"


class RawIsInternal(_Finalize, ReplaceCall):
    """On every route of vLLM-Omni a raw exception is an unknown failure of the server, 500; vLLM's keep its mapping."""

    module = "entrypoints/serve/utils/errors.py"
    function = "_register_omni_exception_handlers"
    callee = "install"
    parts = ("_0", "reviewed")
    new = f'install($_0, raw_mapping=False, seams="{VLLM}")'
    before = """
        def register(app):
            install(app, reviewed=("one", "two"))
    """
    after = f"""
        def register(app):
            install(app, raw_mapping=False, seams="{VLLM}")
    """


class NoResponseByHand(_Finalize, RemoveDefinitions):
    """Nothing makes the response of a failed engine any more; the boundary does."""

    module = "entrypoints/serve/utils/errors.py"
    names = ("_get_request_id_from_request", "_build_engine_error_payload", "_create_engine_error_json_response")
    hits = 3
    before = """
        def _get_request_id_from_request(req):
            return req.state.request_id


        def _build_engine_error_payload(exc):
            return {"error": str(exc)}


        def _create_engine_error_json_response(req, exc):
            return respond(_build_engine_error_payload(exc), _get_request_id_from_request(req))


        def register(app):
            install(app)
    """
    after = """
        def register(app):
            install(app)
    """


class NoErrorResponseByHand(_Finalize, RemoveDefinitions):
    """Nothing makes an error response of a route any more; the boundary does."""

    module = "entrypoints/openai/errors.py"
    names = ("_error_response_to_json_response", "_create_speech_error_json_response")
    hits = 2
    before = """
        def _error_response_to_json_response(error):
            return respond(error.model_dump())


        def _create_speech_error_json_response(message):
            return _error_response_to_json_response(create_error_response(message))


        class Unusable(Exception):
            pass
    """
    after = """
        class Unusable(Exception):
            pass
    """


class NoErrorResponseInChat(_Finalize, RemoveDefinitions):
    """Nothing makes an error response in chat any more; the boundary does."""

    module = CHAT
    names = ("OmniOpenAIServingChat._create_error_response",)
    before = """
        class OmniOpenAIServingChat:
            def answer(self):
                return 1

            def _create_error_response(self, message):
                return respond(message)
    """
    after = """
        class OmniOpenAIServingChat:
            def answer(self):
                return 1
    """


# ---- seams -----------------------------------------------------------------------------------------------------------


def _example(callee: str, imports: tuple[tuple[str, str]], arguments: str) -> tuple[str, str]:
    """A call before, and after it goes through the wrapper that is imported."""
    [(module, wrapper)] = imports
    before = f"""
        def read(self, request):
            x = {callee}(request)
            return x
    """
    after = f"""
        from {module} import {wrapper}


        def read(self, request):
            x = {wrapper}({callee}{arguments})(request)
            return x
    """
    return before, after


class _Reads(_Finalize, WrapCallee):
    wrapper = "reads_request"
    imports = (("vllm_omni_errors.seams", "reads_request"),)


class CompanionSeam(_Reads):
    """The prompts that guidance adds hold the client's negative prompt, and are read like its prompt."""

    module = "engine/async_omni_engine.py"
    function = "AsyncOmniEngine._build_cfg_companions"
    callee = "self.input_processor.process_inputs"
    before, after = _example(callee, _Reads.imports, "")


class NextStageSeam(_Reads):
    """The sampling parameters of a later language stage may be the client's, and are checked in the orchestrator."""

    module = "engine/orchestrator.py"
    function = "OrchestratorBase._build_next_stage_request"
    callee = "processor.process_inputs"
    arguments = ', parameter="sampling_params_list"'
    before, after = _example(callee, _Reads.imports, arguments)


class ToolCallsSeam(_Reads):
    """Tool calls in the history of a Mistral chat are validated here."""

    module = CHAT
    function = CREATE_CHAT
    callee = "maybe_serialize_tool_calls"
    arguments = ', parameter="messages"'
    before, after = _example(callee, _Reads.imports, arguments)


class ToolCallIdsSeam(_Reads):
    """A tool call in the history of a Mistral chat may lack its id, or have a number as such."""

    module = CHAT
    function = CREATE_CHAT
    callee = "truncate_tool_call_ids"
    arguments = ', parameter="messages", also=(AttributeError, KeyError)'
    before, after = _example(callee, _Reads.imports, arguments)


class ReasoningParserSeam(_Reads):
    """A reasoning parser is made of what the request says for the template."""

    module = CHAT
    function = CREATE_CHAT
    callee = "self.parser_cls.reasoning_parser_cls"
    arguments = ', parameter="chat_template_kwargs"'
    before, after = _example(callee, _Reads.imports, arguments)


class HarmonySeam(_Reads):
    """Another renderer of messages, for a format that no model of vLLM-Omni uses yet."""

    module = CHAT
    function = CREATE_CHAT
    callee = "self.online_renderer._make_request_with_harmony"
    arguments = ', parameter="messages"'
    before, after = _example(callee, _Reads.imports, arguments)


class SessionRequestSeam(_Reads):
    """The settings of a session become a chat request, which may not take them."""

    module = "entrypoints/openai/video_stream_session.py"
    function = "VideoStreamSession.build_chat_request"
    callee = "ChatCompletionRequest"
    before, after = _example(callee, _Reads.imports, "")


class RenderingSeam(_Finalize, WrapCallee):
    """vLLM's renderer validates messages, reads the template, fetches media and tokenizes."""

    module = CHAT
    function = PREPROCESS
    callee = "renderer.render_chat_async"
    wrapper = "reads_messages"
    imports = (("vllm_omni_errors.media", "reads_messages"),)
    before, after = _example(callee, imports, "")


class ToolParserSeam(_Finalize, TryAround):
    """A tool parser makes a schema of the request's tools: definitions that differ, a chosen tool that is not there."""

    module = CHAT
    function = PREPROCESS
    assignment = "request"
    imports = (("vllm_omni_errors.seams", "request_error"),)
    new = 'except (ValueError, TypeError) as e:\n    raise request_error(e, parameter="tools") from e'
    before = """
        def adjust(request, tokenizer):
            request = tool_parser(tokenizer).adjust_request(request=request)
            return request
    """
    after = """
        from vllm_omni_errors.seams import request_error


        def adjust(request, tokenizer):
            try:
                request = tool_parser(tokenizer).adjust_request(request=request)
            except (ValueError, TypeError) as e:
                raise request_error(e, parameter="tools") from e
            return request
    """


class _Fetches(_Finalize, WrapCallee):
    module = CHAT
    function = DEFERRED
    wrapper = "fetches_media"
    imports = (("vllm_omni_errors.media", "fetches_media"),)


class DeferredVideoSeam(_Fetches):
    """A video for a later stage that cannot be had or read is 422."""

    callee = "media_connector.fetch_video_async"
    arguments = ', parameter="video_url"'
    before, after = _example(callee, _Fetches.imports, arguments)


class DeferredImageSeam(_Fetches):
    """An image for a later stage that cannot be had or read is 422."""

    callee = "fetch_image"
    arguments = ', parameter="image_url"'
    before, after = _example(callee, _Fetches.imports, arguments)


class DeferredAudioSeam(_Fetches):
    """Audio for a later stage that cannot be had or read is 422."""

    callee = "fetch_audio"
    arguments = ', parameter="audio_url"'
    before, after = _example(callee, _Fetches.imports, arguments)


class ChatVoiceSeam(_Fetches):
    """A voice to imitate that cannot be had or read is 422."""

    function = "OmniOpenAIServingChat._attach_minicpmo45_reference_audio"
    callee = "media_connector.fetch_audio_async"
    arguments = ', parameter="ref_audio"'
    before, after = _example(callee, _Fetches.imports, arguments)


class MediaHashSeam(_Finalize, WrapCallee):
    """With several replicas of a stage the pixels of a request are read here first, and may turn out to be broken."""

    module = "engine/async_omni_engine.py"
    function = "AsyncOmniEngine._ensure_stage_replica_mm_uuids"
    callee = "MultiModalHasher.hash_kwargs"
    wrapper = "decodes_media"
    imports = (("vllm_omni_errors.media", "decodes_media"),)
    before, after = _example(callee, imports, "")


class RealtimeAudioSeam(_Finalize, ReplaceKeyword):
    """The engine draws its prompts from a stream that decodes and renders the client's audio."""

    module = "entrypoints/openai/realtime_connection.py"
    function = "RealtimeConnection._run_generation"
    callee = "self.engine.generate"
    keyword = "prompt"
    value = 'reads_stream(streaming_input_gen, parameter="audio")'
    imports = (("vllm_omni_errors.seams", "reads_stream"),)
    before = """
        def generate(self, streaming_input_gen):
            return self.engine.generate(prompt=streaming_input_gen)
    """
    after = """
        from vllm_omni_errors.seams import reads_stream


        def generate(self, streaming_input_gen):
            return self.engine.generate(prompt=reads_stream(streaming_input_gen, parameter="audio"))
    """


# ---- clauses that caught more than a seam ----------------------------------------------------------------------------


class _Propagates(_Finalize, StopTranslating):
    before = """
        def prepare():
            try:
                prompt = render()
            except (ValueError, TypeError) as e:
                raise request_error(e) from e
            return prompt
    """
    after = """
        def prepare():
            prompt = render()
            return prompt
    """


class ChatPreprocessingPropagates(_Propagates):
    """What vLLM raises for the request is typed at each seam; anything else of preprocessing is the server's."""

    module = CHAT
    function = CREATE_CHAT
    clauses = (("RecursionError",), (*_RAW_OF_A_RENDERER, "jinja2.TemplateError"))


class VideoChatPreprocessingPropagates(_Propagates):
    """What vLLM raises for the request is typed at each seam; anything else of preprocessing is the server's."""

    module = "entrypoints/openai/video_stream_base.py"
    function = "OmniStreamingVideoHandler._process_query_engine"
    clauses = ((*_RAW_OF_A_RENDERER, "TemplateError"),)


class DiffusionArgumentsPropagate(_Propagates):
    """The reader of diffusion arguments says itself what is wrong with them, and with which."""

    module = CHAT
    function = CREATE_CHAT
    clauses = (("ValueError",),)
    about = "normalized_extra_args, diffusion_request_args"
    before = """
        def prepare():
            try:
                normalized_extra_args, diffusion_request_args = read()
            except ValueError as e:
                raise request_error(e) from e
            return diffusion_request_args
    """
    after = """
        def prepare():
            normalized_extra_args, diffusion_request_args = read()
            return diffusion_request_args
    """


# ---- raise sites, as reviewed ----------------------------------------------------------------------------------------

DECIDED: Mapping[str, tuple[str, ...]] = {
    "entrypoints/async_omni.py": ("AsyncOmni.encode", "AsyncOmni.generate", "AsyncOmni.submit_interaction_async"),
    "entrypoints/openai/diffusion_request_utils.py": ("*",),
    "entrypoints/openai/utils.py": ("validate_requested_speaker",),
}
"""Functions whose decided sites change: the last that raised a raw type for a client's mistake."""

FINALIZE: tuple[type[Rewrite], ...] = (
    RawIsInternal,
    NoResponseByHand,
    NoErrorResponseByHand,
    NoErrorResponseInChat,
    CompanionSeam,
    NextStageSeam,
    ToolCallsSeam,
    ToolCallIdsSeam,
    ReasoningParserSeam,
    HarmonySeam,
    SessionRequestSeam,
    RenderingSeam,
    ToolParserSeam,
    DeferredVideoSeam,
    DeferredImageSeam,
    DeferredAudioSeam,
    ChatVoiceSeam,
    MediaHashSeam,
    RealtimeAudioSeam,
    ChatPreprocessingPropagates,
    VideoChatPreprocessingPropagates,
    DiffusionArgumentsPropagate,
)
