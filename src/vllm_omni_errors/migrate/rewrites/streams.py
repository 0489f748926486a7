# SPDX-License-Identifier: Apache-2.0
"""Phase `transports`: server-sent events of chat, completions, responses and image edits (contract, section 5)."""

from collections.abc import Mapping
from typing import ClassVar

import libcst as cst

from vllm_omni_errors.migrate.rewrite import Phase, Rewrite
from vllm_omni_errors.migrate.rewrites.shapes import ReplaceKeyword, StopTranslating, WrapCallee

API_SERVER = "entrypoints/openai/api_server.py"
CHAT = "entrypoints/openai/serving_chat.py"
CHAT_STREAM = "OmniOpenAIServingChat.chat_completion_stream_generator"
EDIT_STREAM = "OmniOpenAIServingChat._stream_diffusion_image_chunks"

_LIBRARY = "vllm_omni_errors.streams"
_ANY = ("Exception",)


class _Transports(Rewrite):
    phase: ClassVar[Phase] = "transports"


# ---- failures leave the generators ----------------------------------------------------------------------------------


class ChatStreamRaises(_Transports, StopTranslating):
    """What fails leaves the generator: only whoever sends its events knows whether one was sent already."""

    module = CHAT
    function = CHAT_STREAM
    clauses = (("EngineDeadError",), _ANY)
    before = """
        async def events():
            try:
                yield await item()
            except EngineDeadError as e:
                yield str(e)
            except Exception as e:
                yield str(e)
    """
    after = """
        async def events():
            yield await item()
    """


class ChatParserRaises(_Transports, StopTranslating):
    """A parser that cannot be built is a failure before the first event."""

    module = CHAT
    function = CHAT_STREAM
    clauses = (_ANY,)
    about = "tool_parsers"
    before = """
        async def events():
            try:
                tool_parsers = build()
            except Exception as e:
                yield str(e)
                return
    """
    after = """
        async def events():
            tool_parsers = build()
    """


class EditStreamRaises(_Transports, StopTranslating):
    """What fails leaves the generator: only whoever sends its events knows whether one was sent already."""

    module = CHAT
    function = EDIT_STREAM
    clauses = (("EngineDeadError",), ("OmniClientError",), _ANY)
    before = """
        async def events():
            try:
                yield await item()
            except EngineDeadError as exc:
                yield str(exc)
            except OmniClientError as exc:
                yield str(exc)
            except Exception as exc:
                yield str(exc)
    """
    after = ChatStreamRaises.after


# ---- the first event is awaited -------------------------------------------------------------------------------------


class _Started(_Transports, ReplaceKeyword):
    """A failure before the first event is an HTTP error, a later one is the last event, in the canonical form."""

    module = API_SERVER
    callee = "StreamingResponse"
    keyword = "content"


class ChatStarted(_Started):
    __doc__ = _Started.__doc__
    function = "create_chat_completion"
    value = "await started_chat(generator)"
    imports = ((_LIBRARY, "started_chat"),)
    before = """
        async def answer(generator):
            return StreamingResponse(content=generator)
    """
    after = """
        from vllm_omni_errors.streams import started_chat


        async def answer(generator):
            return StreamingResponse(content=await started_chat(generator))
    """


class EditStarted(_Started):
    __doc__ = _Started.__doc__
    function = "edit_images"
    value = "await started_edit(generation_result)"
    imports = ((_LIBRARY, "started_edit"),)
    before = """
        async def answer(generation_result):
            return StreamingResponse(content=generation_result)
    """
    after = """
        from vllm_omni_errors.streams import started_edit


        async def answer(generation_result):
            return StreamingResponse(content=await started_edit(generation_result))
    """


class EditCanBeCancelled(_Transports):
    """While the first event is awaited, only this decorator notices that the client is gone and aborts its request."""

    module = API_SERVER
    function = "edit_images"
    before = """
        @router.post("/edits")
        async def edit_images(raw_request):
            return await run()
    """
    after = """
        @router.post("/edits")
        @with_cancellation
        async def edit_images(raw_request):
            return await run()
    """

    def on_function(self, original: cst.FunctionDef, updated: cst.FunctionDef) -> cst.FunctionDef:
        self.found += 1
        return updated.with_changes(decorators=[*updated.decorators, cst.Decorator(cst.Name("with_cancellation"))])


class _StartedByClass(_Transports, WrapCallee):
    module = API_SERVER
    function = "omni_init_app_state"


class CompletionsStarted(_StartedByClass):
    """vLLM's class told a failure before the first event, or nothing but the end mark, with HTTP 200."""

    callee = "OpenAIServingCompletion"
    wrapper = "started_completions"
    imports = ((_LIBRARY, "started_completions"),)
    before = """
        def init(state):
            state.serving = OpenAIServingCompletion(state.models)
    """
    after = """
        from vllm_omni_errors.streams import started_completions


        def init(state):
            state.serving = started_completions(OpenAIServingCompletion)(state.models)
    """


class ResponsesStarted(_StartedByClass):
    """The streams of vLLM's class broke off when they failed; they end in `response.failed`."""

    callee = "OpenAIServingResponses"
    wrapper = "started_responses"
    imports = ((_LIBRARY, "started_responses"),)
    before = """
        def init(state):
            state.serving = OpenAIServingResponses(state.models)
    """
    after = """
        from vllm_omni_errors.streams import started_responses


        def init(state):
            state.serving = started_responses(OpenAIServingResponses)(state.models)
    """


REVIEWED: tuple[str, ...] = ()
"""Routes whose own errors are all typed: a raw exception on them is 500."""

DECIDED: Mapping[str, tuple[str, ...]] = {}
"""Functions whose decided sites change."""

STREAMS: tuple[type[Rewrite], ...] = (
    ChatStreamRaises,
    ChatParserRaises,
    EditStreamRaises,
    ChatStarted,
    EditStarted,
    EditCanBeCancelled,
    CompletionsStarted,
    ResponsesStarted,
)
