# SPDX-License-Identifier: Apache-2.0
"""Wrong requests for the routes whose endpoints are vLLM's own.

Each is wrong in its own way: by a field's value or type, by what fields say together, by the prompt, the model, or the
body as a whole.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from calls import (
    BROKEN_TEMPLATE,
    LONG,
    OTHER_TOOL,
    PNG,
    RAISING_TEMPLATE,
    TOOL,
    TRUNCATED,
    WRONG_SCHEMA,
    data_url,
    image_part,
)
from support import Call, get, post

SURROGATE = b'"\\ud800"'
NOT_BASE64 = "data:image/png,xx"
LOCAL = "file:///etc/hostname"
PICTURE = {"type": "base64", "media_type": "image/png", "data": "AA"}


def user(content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


MESSAGES: Mapping[str, Any] = {
    "empty": [],
    "a number": 5,
    "a text": "hi",
    "of numbers": [5],
    "of no role": [{"content": "hi"}],
    "of an unknown role": [{"role": "zzz", "content": "hi"}],
    "of no content": [{"role": "user"}],
    "an image": user(image_part(data_url(PNG))),
    "a broken image": user(image_part(data_url(TRUNCATED))),
    "a URL not base64": user(image_part(NOT_BASE64)),
    "a local file": user(image_part(LOCAL)),
    "audio": user([{"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}}]),
    "a part without a type": user([{"a": 1}]),
    "a part of an unknown type": user([{"type": "zzz", "zzz": 1}]),
    "embeddings": user([{"type": "prompt_embeds", "data": "AA"}]),
    "tool calls a number": [{"role": "assistant", "tool_calls": 5}],
    "too long": user(LONG),
}

CHAT: Mapping[str, Mapping[str, Any]] = {
    **{f"messages {name}": {"messages": messages} for name, messages in MESSAGES.items()},
    "template that does not parse": {"chat_template": BROKEN_TEMPLATE},
    "template that raises": {"chat_template": RAISING_TEMPLATE},
    "template a number": {"chat_template": 5},
    "template arguments a text": {"chat_template_kwargs": "x"},
    "template argument that is taken": {"chat_template_kwargs": {"conversation": []}},
    "processor arguments": {"mm_processor_kwargs": {"a": 1}},
    "media arguments of wrong types": {"media_io_kwargs": {"image": 5}},
    "contradiction about the last message": {"continue_final_message": True, "add_generation_prompt": True},
    "tools a number": {"tools": 5},
    "tools of nothing": {"tools": [{}]},
    "tool that is not there": {"tools": [TOOL], "tool_choice": OTHER_TOOL},
}
"""Of every route that takes messages."""

SAMPLING: Mapping[str, Mapping[str, Any]] = {
    "temperature -3": {"temperature": -3},
    "temperature a text": {"temperature": "hot"},
    "top_p 7": {"top_p": 7},
    "top_k -7": {"top_k": -7},
    "min_p 7": {"min_p": 7},
    "presence_penalty 9": {"presence_penalty": 9},
    "frequency_penalty -9": {"frequency_penalty": -9},
    "repetition_penalty 0": {"repetition_penalty": 0},
    "max_tokens 0": {"max_tokens": 0},
    "max_tokens over the context": {"max_tokens": 9_999},
    "max_tokens over 2**63-1": {"max_tokens": 2**70},
    "min_tokens over max_tokens": {"max_tokens": 2, "min_tokens": 5},
    "seed over 2**63-1": {"seed": 2**70},
    "seed a text": {"seed": "x"},
    "n 0": {"n": 0},
    "n -1": {"n": -1},
    "n many": {"n": 100_000},
    "stop a number": {"stop": 5},
    "stop empty": {"stop": [""]},
    "stop_token_ids texts": {"stop_token_ids": ["x"]},
    "logit_bias over the vocabulary": {"logit_bias": {"99999999": 1}},
    "logit_bias of a word": {"logit_bias": {"x": 1}},
    "logit_bias too high": {"logit_bias": {"1": 1_000}},
    "allowed_token_ids empty": {"allowed_token_ids": []},
    "allowed_token_ids over the vocabulary": {"allowed_token_ids": [2**40]},
    "bad_words numbers": {"bad_words": [5]},
    "prompt_logprobs -5": {"prompt_logprobs": -5},
    "prompt_logprobs a text": {"prompt_logprobs": "x"},
    "truncate_prompt_tokens over the context": {"truncate_prompt_tokens": 9_999},
    "truncate_prompt_tokens -7": {"truncate_prompt_tokens": -7},
    "stream_options without a stream": {"stream_options": {"include_usage": True}},
    "regular expression that does not parse": {"structured_outputs": {"regex": "("}},
    "grammar that does not parse": {"structured_outputs": {"grammar": "zzz"}},
    "no constraint": {"structured_outputs": {}},
    "two constraints": {"structured_outputs": {"regex": "a", "json": {}}},
    "no choice": {"structured_outputs": {"choice": []}},
    "constraint a number": {"structured_outputs": 5},
    "schema of no type": {"response_format": WRONG_SCHEMA},
    "schema missing": {"response_format": {"type": "json_schema"}},
    "unknown response_format": {"response_format": {"type": "zzz"}},
    "vllm_xargs of lists": {"vllm_xargs": {"a": [[]]}},
    "priority": {"priority": 5},
    "cache_salt empty": {"cache_salt": ""},
    "unknown LoRA": {"model": "adapter"},
    "unknown model": {"model": "nope"},
    "model a number": {"model": 5},
    "logprobs -1": {"logprobs": -1},
    "logprobs many": {"logprobs": 1_000},
    "kv_transfer_params a text": {"kv_transfer_params": "x"},
    "request_id a list": {"request_id": []},
}
"""Of every route that samples."""

PROMPTS: Mapping[str, Any] = {
    "empty": "",
    "no list": [],
    "an empty list": [[]],
    "a number": 5,
    "an object": {"a": 1},
    "null": None,
    "too long": LONG,
    "tokens over the vocabulary": [2**40],
    "tokens over 2**63-1": [2**70],
    "negative tokens": [-1],
    "of both kinds": ["x", 5],
    "of empty texts": ["", ""],
    "bools": [True],
}

BODIES: Mapping[str, bytes] = {
    "empty": b"",
    "null": b"null",
    "a list": b"[]",
    "not JSON": b"{",
    "not UTF-8": b"\xff\xfe",
    "NaN": b'{"temperature": NaN, "max_tokens": 2, "prompt": "x", "messages": []}',
    "a lone surrogate": b'{"prompt": %b, "messages": [{"role": "user", "content": %b}], "input": %b, "max_tokens": 2}'
    % (SURROGATE, SURROGATE, SURROGATE),
}

GOOD: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "/tokenize": {"prompt": "x"},
        "/detokenize": {"tokens": [1]},
        "/v1/completions": {"prompt": "x", "max_tokens": 2},
        "/v1/messages": {"messages": user("x"), "max_tokens": 2},
        "/v1/messages/count_tokens": {"messages": user("x")},
        "/v1/responses": {"input": "x", "max_output_tokens": 2},
        "/generative_scoring": {"query": "a", "items": ["b"], "label_token_ids": [1, 2]},
        "/invocations": {"prompt": "x", "max_tokens": 2},
    }
)
"""A body of each route, of which one thing is wrong in each request."""

WRONG: Mapping[str, Sequence[Mapping[str, Mapping[str, Any]]]] = {
    "/tokenize": (
        {f"prompt {name}": {"prompt": prompt} for name, prompt in PROMPTS.items()},
        {name: {"prompt": None, "messages": user("x"), **fields} for name, fields in CHAT.items()},
        {
            "unknown model": {"model": "nope"},
            "model a number": {"model": 5},
            "add_special_tokens 7": {"add_special_tokens": 7},
        },
    ),
    "/detokenize": (
        {
            "no token": {"tokens": []},
            "token over 2**32-1": {"tokens": [2**40]},
            "token over 2**63-1": {"tokens": [2**70]},
            "negative token": {"tokens": [-1]},
            "tokens texts": {"tokens": ["x"]},
            "tokens a text": {"tokens": "x"},
            "tokens null": {"tokens": None},
            "unknown model": {"model": "nope"},
        },
    ),
    "/v1/completions": (
        {f"prompt {name}": {"prompt": prompt} for name, prompt in PROMPTS.items()},
        SAMPLING,
        {
            "embeddings not enabled": {"prompt_embeds": "AAAA"},
            "suffix": {"suffix": "x"},
            "echo a text": {"echo": "maybe so"},
            "best_of": {"best_of": 5},
            "stream a text": {"stream": "maybe"},
        },
    ),
    "/v1/messages": (
        {name: fields for name, fields in CHAT.items() if name.startswith("messages")},
        {
            "temperature -3": {"temperature": -3},
            "top_p 7": {"top_p": 7},
            "max_tokens over the context": {"max_tokens": 9_999},
            "unknown model": {"model": "nope"},
            "max_tokens missing": {"max_tokens": None},
            "system a number": {"system": 5},
            "tool without a schema": {"tools": [{"name": "f"}]},
            "tool_choice of no tool": {"tool_choice": {"type": "tool", "name": "g"}},
            "image of no source": {"messages": user([{"type": "image"}])},
            "image": {"messages": user([{"type": "image", "source": PICTURE}])},
            "thinking": {"thinking": {"type": "enabled", "budget_tokens": -1}},
        },
    ),
    "/v1/messages/count_tokens": (
        {name: fields for name, fields in CHAT.items() if name.startswith("messages")},
        {"unknown model": {"model": "nope"}, "system a number": {"system": 5}},
    ),
    "/v1/responses": (
        SAMPLING,
        {
            "input empty": {"input": ""},
            "input no item": {"input": []},
            "input null": {"input": None},
            "input of numbers": {"input": [5]},
            "input an item of no type": {"input": [{"a": 1}]},
            "input too long": {"input": LONG},
            "input an image": {"input": user([{"type": "input_image", "image_url": data_url(PNG), "detail": "auto"}])},
            "input a function's output": {"input": [{"type": "function_call_output", "call_id": "x", "output": "y"}]},
            "max_output_tokens 0": {"max_output_tokens": 0},
            "previous_response_id unknown": {"previous_response_id": "resp_nope"},
            "previous_response_id of no response": {"previous_response_id": "nope"},
            "background without a store": {"background": True, "store": False},
            "text.format of no type": {"text": {"format": {"type": "json_schema", **WRONG_SCHEMA["json_schema"]}}},
            "tools of an unknown type": {"tools": [{"type": "zzz"}]},
            "tool_choice of no tool": {"tool_choice": {"type": "function", "name": "g"}},
            "top_logprobs 99": {"top_logprobs": 99, "include": ["message.output_text.logprobs"]},
            "truncation": {"truncation": "zzz"},
            "reasoning": {"reasoning": {"effort": "zzz"}},
            "instructions a number": {"instructions": 5},
        },
    ),
    "/generative_scoring": (
        {
            "no item": {"items": []},
            "no label": {"label_token_ids": []},
            "label over the vocabulary": {"label_token_ids": [2**40]},
            "query a number": {"query": 5},
            "unknown model": {"model": "nope"},
        },
    ),
    "/invocations": (
        {f"prompt {name}": {"prompt": prompt} for name, prompt in PROMPTS.items()},
        {"neither prompt nor messages": {"prompt": None}, "unknown model": {"model": "nope"}},
        {
            f"messages {name}": {"prompt": None, "messages": messages}
            for name, messages in MESSAGES.items()
            if name in ("empty", "a number", "of numbers", "an image", "tool calls a number", "too long")
        },
    ),
}  # fmt: skip

OTHERS: Mapping[str, Call] = {
    "responses: unknown response": get("/v1/responses/resp_nope"),
    "responses: id of no response": get("/v1/responses/nope"),
    "responses: unknown response in a stream": get("/v1/responses/resp_nope?stream=true&starting_after=x"),
    "responses: cancel an unknown response": post("/v1/responses/resp_nope/cancel", {}),
    "responses: cancel no response": post("/v1/responses/nope/cancel", {}),
    "tokenizer info": get("/tokenizer_info"),
    "scaling: no size": post("/scale_elastic_ep", {}),
    "scaling: size a text": post("/scale_elastic_ep", {"new_data_parallel_size": "x"}),
    "scaling: size 0": post("/scale_elastic_ep", {"new_data_parallel_size": 0}),
    "load a LoRA": post("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "/nope"}),
    "embeddings": post("/v1/embeddings", {"input": "x"}),
    "pooling": post("/pooling", {"input": "x"}),
    "score": post("/score", {"text_1": "x", "text_2": "y"}),
    "rerank": post("/rerank", {"query": "x", "documents": ["y"]}),
    "classify": post("/classify", {"input": "x"}),
    "transcriptions": post("/v1/audio/transcriptions", {}),
    "translations": post("/v1/audio/translations", {}),
    "generate": post("/inference/v1/generate", {"token_ids": [1]}),
}


def _made(path: str, fields: Mapping[str, Any]) -> Call:
    body = {"model": "tiny", **GOOD[path], **fields}
    return post(path, {name: value for name, value in body.items() if value is not None or path != "/tokenize"})


CALLS: Mapping[str, Call] = {
    **{
        f"{path} {name}": _made(path, fields)
        for path, tables in WRONG.items()
        for table in tables
        for name, fields in table.items()
    },
    **{
        f"{path} body {name}": Call("POST", path, content=content, headers={"content-type": "application/json"})
        for path in GOOD
        for name, content in BODIES.items()
    },
    **{f"{path} not JSON by its content type": Call("POST", path, content=b"{}", headers={"content-type": "text/plain"})
       for path in GOOD},
    **OTHERS,
}  # fmt: skip
