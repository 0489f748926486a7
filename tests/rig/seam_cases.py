# SPDX-License-Identifier: Apache-2.0
"""Wrong requests that vLLM's own code refuses, for each seam in reach, and what the migrated server answers.

Seams of ledgers/upstream-0.30.0 that are missing here are called by themselves (places_program.py), or need a model
that the rig does not have.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from calls import (
    BROKEN_TEMPLATE,
    LONG,
    OTHER_TOOL,
    PNG,
    RAISING_TEMPLATE,
    TOOL,
    TRUNCATED,
    batch,
    chat,
    completions,
    data_url,
    edits,
    image_part,
    images,
    raw,
)
from cases import now
from support import Call, Seen, post

ROUTE = ("", "validate_json_request")
BODY = ("create_chat_completion", "ChatCompletionRequest")
BATCH_BODY = ("create_batch_chat_completion", "BatchChatCompletionRequest")
CONVERSATION = ("OmniOpenAIServingChatBatch.create_batch_chat_completion", "request.to_chat_completion_request")
MODEL = ("OmniOpenAIServingChat._create_chat_completion", "self._check_model")
ADAPTERS = ("OmniOpenAIServingChat._create_chat_completion", "self._maybe_get_adapters")
LIMITS = ("OmniOpenAIServingChat._preprocess_chat", "request.build_tok_params")
RENDERER = ("OmniOpenAIServingChat._preprocess_chat", "renderer.render_chat_async")
NO_PROCESSOR = ("OmniRenderer._process_singleton_async", "renderer._process_multimodal_async")
STAGE_PARAMETERS = ("OmniOpenAIServingChat._to_sampling_params_list", "target_cls")
INPUTS = ("AsyncOmniEngine._build_add_request_message", "self.input_processor.process_inputs")
COMPANION = ("AsyncOmniEngine._build_cfg_companions", "self.input_processor.process_inputs")
LORA = ("parse_lora_request", "LoRARequest")
AUDIO_MODEL = ("OmniOpenAIServingAudioGenerate.create_audio_generate", "self._check_model")
SPEECH_MODEL = ("OmniOpenAIServingSpeech.create_speech", "self._check_model")
SPEECH_BATCH_MODEL = ("OmniOpenAIServingSpeech.create_speech_batch", "self._check_model")

VOICE = ("OmniOpenAIServingChat._attach_minicpmo45_reference_audio", "media_connector.fetch_audio_async")
DEFERRED = "OmniOpenAIServingChat._materialize_deferred_multimodal_parts"
DEFERRED_IMAGE = (DEFERRED, "fetch_image")
DEFERRED_AUDIO = (DEFERRED, "fetch_audio")
DEFERRED_VIDEO = (DEFERRED, "media_connector.fetch_video_async")

TOOL_CALL_ID = "body.0.ChatCompletionMessageFunctionToolCallParam.id"
NESTED_TEMPLATE = "{{ " + "(" * 3_000 + "1" + ")" * 3_000 + " }}"
LONG_TEMPLATE = "{% for i in range(3000) %}aaaaaaaa{% endfor %}"
HUGE = b"\x00\x01\x02 not \xff" * 20
"""For PIL an image of 800 million pixels, which it refuses with an exception of its own."""

NO_ADAPTER = {"name": "a", "path": "/b", "int_id": 0}
"""Numbers of adapters begin with 1."""


@dataclass(frozen=True, slots=True)
class SeamCase:
    """One wrong request; ``seam`` is the function that calls into vLLM, and the call, as in the ledger."""

    title: str
    seam: tuple[str, str]
    call: Call
    now: Seen

    def __str__(self) -> str:
        return self.title


def conversation(*messages: Any, **more: Any) -> Call:
    return chat("", messages=[{"role": "user", "content": "hi"}, *messages], **more)


def conversations(*conversations: Any) -> Call:
    return post("/v1/chat/completions/batch", {"model": "tiny", "messages": conversations})


def stage_parameters(**first: Any) -> Call:
    """Chat with parameters for the first stage."""
    return chat("hi", sampling_params_list=[first, {}])


def part(name: str, url: str) -> Call:
    """Chat with media."""
    return chat([{"type": name, name: {"url": url}}])


def untyped(name: str, url: str) -> Call:
    """Chat with media that is not for a later stage, for vLLM-Omni asks its type."""
    return chat([{name: url}])


def tool_call(**fields: Any) -> Call:
    """Chat with a tool call in its history."""
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}, **fields}
    return conversation({"role": "assistant", "content": "", "tool_calls": [call]})


BAD = now(400, "BadRequestError")
UNKNOWN_MODEL = now(404, "NotFoundError", "model")


def bad(param: str) -> Seen:
    return now(400, "BadRequestError", param)


def unusable(param: str) -> Seen:
    return now(422, "UnprocessableEntityError", param)


# fmt: off
TWO_STAGES: Sequence[SeamCase] = (
    SeamCase("chat: not JSON by its content type", ROUTE, raw("/v1/chat/completions", b"{}", "text/plain"),
             now(400, "Bad Request")),
    SeamCase("images: not JSON by its content type", ROUTE, raw("/v1/images/generations", b"{}", "text/plain"),
             now(400, "Bad Request")),
    SeamCase("chat: tool choice a number", BODY, chat("hi", tools=[TOOL], tool_choice=5), bad("tool_choice")),
    SeamCase("chat: no kind of constraint", BODY, chat("hi", structured_outputs={}), BAD),
    SeamCase("chat: prompt logprobs not a number", BODY, chat("hi", prompt_logprobs="x"), bad("prompt_logprobs")),
    SeamCase("batch: more than one choice", BATCH_BODY, batch("hi", n=5), bad("n")),
    SeamCase("batch: contradiction about the last message", CONVERSATION,
             batch("hi", continue_final_message=True, add_generation_prompt=True), BAD),
    SeamCase("chat: adapter that is not loaded", MODEL, chat("hi", model="adapter"), UNKNOWN_MODEL),
    SeamCase("chat: truncation over the context", LIMITS, chat("hi", truncate_prompt_tokens=9_999),
             bad("truncate_prompt_tokens")),
    SeamCase("chat: template that does not parse", RENDERER, chat("hi", chat_template=BROKEN_TEMPLATE), BAD),
    SeamCase("chat: template that raises", RENDERER, chat("hi", chat_template=RAISING_TEMPLATE), BAD),
    SeamCase("chat: template that divides by zero", RENDERER, chat("hi", chat_template="{{ 1 / 0 }}"), BAD),
    SeamCase("chat: template that makes too much", RENDERER, chat("hi", chat_template=LONG_TEMPLATE),
             bad("input_text")),
    SeamCase("chat: template argument that is taken", RENDERER, chat("hi", chat_template_kwargs={"conversation": []}),
             BAD),
    SeamCase("chat: tools for the template not a list", RENDERER, chat("hi", chat_template_kwargs={"tools": 5}), BAD),
    SeamCase("chat: lone surrogate", RENDERER,
             raw("/v1/chat/completions", b'{"messages":[{"role":"user","content":"\\ud800"}]}'), BAD),
    SeamCase("chat: part without a type", RENDERER, chat([{"a": 1}]), BAD),
    SeamCase("chat: image for a text model", RENDERER, chat(image_part(data_url(PNG))), BAD),
    SeamCase("chat: data URL not base64", RENDERER, chat(image_part("data:image/png,xx")), BAD),
    SeamCase("chat: audio for a text model", RENDERER,
             chat([{"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}}]), BAD),
    SeamCase("chat: embeddings not enabled", RENDERER, chat([{"type": "prompt_embeds", "data": "AA"}]),
             bad("prompt_embeds")),
    SeamCase("chat: arguments for a processor that is not there", NO_PROCESSOR,
             chat("hi", mm_processor_kwargs={"a": 1}), BAD),
    SeamCase("chat: stage parameter out of range", STAGE_PARAMETERS, stage_parameters(temperature=-3),
             bad("temperature")),
    SeamCase("chat: empty trace to replay", INPUTS, stage_parameters(trace_decode_token_ids=[]), BAD),
    SeamCase("chat: allowed tokens not numbers", STAGE_PARAMETERS, stage_parameters(allowed_token_ids=["a"]),
             bad("sampling_params_list")),
    SeamCase("chat: start over the prompt's end", INPUTS, stage_parameters(routed_experts_prompt_start=99),
             bad("routed_experts_prompt_start")),
    SeamCase("images: lone surrogate", INPUTS,
             raw("/v1/images/generations", b'{"size":"64x64","prompt":"\\udfff"}'), bad("prompt")),
    SeamCase("images: prompt too long", INPUTS, images(LONG), bad("input_tokens")),
    SeamCase("images: negative prompt with a lone surrogate", COMPANION,
             raw("/v1/images/generations", b'{"size":"64x64","prompt":"x","negative_prompt":"\\udfff"}'),
             bad("negative_prompt")),
    SeamCase("images: negative prompt too long", COMPANION, images("x", negative_prompt=LONG), bad("input_tokens")),
    SeamCase("completions: regular expression that does not parse", INPUTS,
             completions(prompt="x", structured_outputs={"regex": "("}), BAD),
    SeamCase("completions: grammar that does not parse", INPUTS,
             completions(prompt="x", structured_outputs={"grammar": "zzz"}), BAD),
    SeamCase("images: number of no adapter", LORA, images("x", lora=NO_ADAPTER), bad("lora")),
    SeamCase("edits: number of no adapter", LORA,
             edits("x", PNG, size="64x64", lora=json.dumps(NO_ADAPTER)), bad("lora")),
    SeamCase("audio: unknown model", AUDIO_MODEL, post("/v1/audio/generate", {"model": "nope", "input": "hi"}),
             UNKNOWN_MODEL),
    SeamCase("speech: unknown model", SPEECH_MODEL,
             post("/v1/audio/speech", {"model": "nope", "input": "hi", "voice": "x"}), UNKNOWN_MODEL),
    SeamCase("speech batch: unknown model", SPEECH_BATCH_MODEL,
             post("/v1/audio/speech/batch", {"model": "nope", "items": [{"input": "hi"}], "voice": "x"}),
             UNKNOWN_MODEL),
    SeamCase("chat: messages a number", BODY, chat("hi", messages=5), BAD),
    SeamCase("chat: tool calls a number", BODY, conversation({"role": "assistant", "tool_calls": 5}), BAD),
    SeamCase("chat: tool a number, and chosen", BODY, chat("hi", tools=[5], tool_choice=OTHER_TOOL), BAD),
    SeamCase("chat: tool without a function, and chosen", BODY, chat("hi", tools=[{}], tool_choice=OTHER_TOOL), BAD),
    SeamCase("chat: constraint a number", BODY, chat("hi", structured_outputs=5), BAD),
    SeamCase("chat: type of a part a number", ADAPTERS, conversation({"role": "zzz", "content": [{"type": 5}]}),
             bad("messages")),
    SeamCase("batch: type of a part a number", ADAPTERS, conversations([{"role": "zzz", "content": [{"type": 5}]}]),
             bad("messages")),
    SeamCase("chat: part a text", ADAPTERS, conversation({"role": "zzz", "content": ["type"]}), bad("messages")),
    SeamCase("chat: template nested too deeply", RENDERER, chat("hi", chat_template=NESTED_TEMPLATE),
             bad("chat_template")),
    SeamCase("batch: template nested too deeply", RENDERER, batch("hi", chat_template=NESTED_TEMPLATE),
             bad("chat_template")),
    SeamCase("images: number of an adapter a list", LORA, images("x", lora=NO_ADAPTER | {"int_id": [1]}), bad("lora")),
    SeamCase("images: number of an adapter infinite", LORA,
             raw("/v1/images/generations",
                 b'{"prompt":"x","size":"64x64","lora":{"name":"a","path":"/b","int_id":1e400}}'), bad("lora")),
    SeamCase("images: scale of an adapter a list", LORA, images("x", lora=NO_ADAPTER | {"int_id": 1, "scale": [1]}),
             bad("lora")),
    SeamCase("edits: number of an adapter a list", LORA,
             edits("x", PNG, size="64x64", lora=json.dumps(NO_ADAPTER | {"int_id": [1]})), bad("lora")),
    SeamCase("chat: unknown stage parameter", STAGE_PARAMETERS, stage_parameters(bad=1), bad("sampling_params_list")),
    SeamCase("chat: stage parameter of a wrong type", STAGE_PARAMETERS, stage_parameters(temperature="hot"),
             bad("sampling_params_list")),
    SeamCase("chat: stage parameter null", STAGE_PARAMETERS, stage_parameters(temperature=None),
             bad("sampling_params_list")),
    SeamCase("chat: stage parameter that cannot be sent", STAGE_PARAMETERS, stage_parameters(max_tokens=2**70),
             bad("sampling_params_list")),
    SeamCase("chat: stage parameters a number", STAGE_PARAMETERS, chat("hi", sampling_params_list=5),
             bad("sampling_params_list")),
    SeamCase("chat: stop an object", STAGE_PARAMETERS, stage_parameters(stop={"a": 1}), bad("sampling_params_list")),
    SeamCase("chat: constraint of a stage an object", STAGE_PARAMETERS,
             stage_parameters(structured_outputs={"json": "{"}), bad("sampling_params_list")),
    SeamCase("chat: unwanted word a number", STAGE_PARAMETERS, stage_parameters(bad_words=[5]),
             bad("sampling_params_list")),
    SeamCase("chat: seed of a stage a text", STAGE_PARAMETERS, stage_parameters(seed="x"), bad("sampling_params_list")),
    SeamCase("chat: parameters for more stages than there are", STAGE_PARAMETERS,
             chat("hi", sampling_params_list=[{}, {}, {}, {}, {}]), bad("sampling_params_list")),
    SeamCase("chat: height of an image a text", STAGE_PARAMETERS,
             chat("hi", sampling_params_list=[{}, {"height": "x"}]), bad("sampling_params_list")),
    SeamCase("chat: more parameters of a stage a number", STAGE_PARAMETERS, stage_parameters(extra_args=5),
             bad("sampling_params_list")),
)
"""On an AR stage and a diffusion stage."""

ONE_STAGE: Sequence[SeamCase] = (
    SeamCase("chat: not JSON by its content type", ROUTE, raw("/v1/chat/completions", b"{}", "text/plain"),
             now(400, "Bad Request")),
    SeamCase("chat: tool choice a number", BODY, chat("hi", tools=[TOOL], tool_choice=5), bad("tool_choice")),
    SeamCase("chat: number of no adapter", LORA, chat("hi", lora=NO_ADAPTER), bad("lora")),
    SeamCase("chat: number of an adapter a list", LORA, chat("hi", lora=NO_ADAPTER | {"int_id": [1]}), bad("lora")),
    SeamCase("images: number of no adapter", LORA, images("x", lora=NO_ADAPTER), bad("lora")),
    SeamCase("edits: number of no adapter", LORA,
             edits("x", PNG, size="64x64", lora=json.dumps(NO_ADAPTER)), bad("lora")),
)
"""On a diffusion stage alone."""

SPEAKING: Sequence[SeamCase] = (
    SeamCase("chat: image for a later stage broken", DEFERRED_IMAGE, part("image_url", data_url(TRUNCATED)),
             unusable("image_url")),
    SeamCase("chat: image for a later stage not base64", DEFERRED_IMAGE, part("image_url", "data:image/png,xx"),
             unusable("image_url")),
    SeamCase("chat: image for a later stage a local file", DEFERRED_IMAGE, part("image_url", "file:///etc/hostname"),
             unusable("image_url")),
    SeamCase("chat: image for a later stage of another scheme", DEFERRED_IMAGE, part("image_url", "ftp://host/x"),
             unusable("image_url")),
    SeamCase("chat: audio for a later stage broken", DEFERRED_AUDIO, part("audio_url", "data:audio/wav;base64,AAAA"),
             unusable("audio_url")),
    SeamCase("chat: audio for a later stage without data", DEFERRED_AUDIO, part("audio_url", "data:audio/wav"),
             unusable("audio_url")),
    SeamCase("chat: video for a later stage broken", DEFERRED_VIDEO, part("video_url", "data:video/mp4;base64,AAAA"),
             unusable("video_url")),
    SeamCase("chat: video for a later stage a local file", DEFERRED_VIDEO, part("video_url", "file:///etc/hostname"),
             unusable("video_url")),
    SeamCase("chat: voice to imitate broken", VOICE, chat("hi", ref_audio="data:audio/wav;base64,AAAA"),
             unusable("ref_audio")),
    SeamCase("chat: voice to imitate a local file", VOICE, chat("hi", ref_audio="file:///etc/hostname"),
             unusable("ref_audio")),
    SeamCase("chat: tool call without an id", BODY, tool_call(), now(400, "Bad Request", TOOL_CALL_ID)),
    SeamCase("chat: id of a tool call a number", BODY, tool_call(id=5), now(400, "Bad Request", TOOL_CALL_ID)),
)
"""On a server whose second stage takes media and speaks, and whose tokenizer counts as a Mistral one."""

FIRST_STAGE: Sequence[SeamCase] = (
    SeamCase("chat: image broken", RENDERER, untyped("image_url", data_url(TRUNCATED)), unusable("image_url")),
    SeamCase("chat: image of too many pixels", RENDERER, untyped("image_url", data_url(HUGE)), unusable("image_url")),
    SeamCase("chat: image empty", RENDERER, untyped("image_url", data_url(b"")), unusable("image_url")),
    SeamCase("chat: image not base64", RENDERER, untyped("image_url", "data:image/png,xx"), unusable("image_url")),
    SeamCase("chat: image a local file", RENDERER, untyped("image_url", "file:///etc/hostname"), unusable("image_url")),
    SeamCase("chat: image of another scheme", RENDERER, untyped("image_url", "ftp://host/x"), unusable("image_url")),
    SeamCase("chat: image of no URL", RENDERER, untyped("image_url", "http://[::1/x"), unusable("image_url")),
    SeamCase("chat: audio broken", RENDERER, untyped("audio_url", "data:audio/wav;base64,AAAA"), unusable("audio_url")),
    SeamCase("chat: video broken", RENDERER, untyped("video_url", "data:video/mp4;base64,AAAA"), unusable("video_url")),
    SeamCase("chat: video a picture", RENDERER, untyped("video_url", data_url(PNG)), unusable("video_url")),
)
"""On the same server, for its first stage: what the renderer fetches is media, the rest of it is not."""
# fmt: on
