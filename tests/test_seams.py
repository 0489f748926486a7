# SPDX-License-Identifier: Apache-2.0
"""Raw exceptions and returned error responses become typed where they are known to be one or the other."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec
import pydantic
import pytest
import torch
from starlette.datastructures import State
from vllm import SamplingParams
from vllm.exceptions import VLLMNotFoundError, VLLMServerError, VLLMValidationError
from vllm.tokenizers.mistral import truncate_tool_call_ids

from vllm_omni_errors import OmniServiceUnavailableError, seams, to_details, upstream
from vllm_omni_errors.seams import (
    check_stage_parameters,
    fill_missing_handlers,
    reads_request,
    reads_stage_parameters,
    reads_stream,
    request_error,
    response_error,
)


def response(message: str, error_type: str, code: int, param: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(error=SimpleNamespace(message=message, type=error_type, code=code, param=param))


def test_a_returned_response_keeps_status_type_and_parameter() -> None:
    exc = response_error(response("The model `x` does not exist.", "NotFoundError", 404, "model"))
    assert isinstance(exc, VLLMNotFoundError)
    details = to_details(exc)
    assert (details.status_code, details.error_type, details.parameter) == (404, "NotFoundError", "model")
    assert details.message == "The model `x` does not exist."


def test_a_returned_response_takes_its_request_id_where_it_is_raised() -> None:
    exc = response_error(response("no", "BadRequestError", 400))
    assert to_details(exc, request_id="chatcmpl-1").request_id == "chatcmpl-1"


def test_a_returned_response_that_is_no_error_is_a_server_failure() -> None:
    details = to_details(response_error(response("fine", "OK", 200)))
    assert (details.status_code, details.message) == (500, "Internal server error")


@pytest.mark.parametrize("raw", [ValueError, TypeError, OverflowError])
def test_a_raw_exception_of_code_that_reads_the_request_is_the_clients(raw: type[Exception]) -> None:
    def read() -> None:
        raise raw("the prompt is wrong")

    with pytest.raises(VLLMValidationError) as caught:
        reads_request(read)()
    assert isinstance(caught.value.__cause__, raw)
    assert to_details(caught.value).status_code == 400


@pytest.mark.parametrize("raised", [RuntimeError("x"), KeyError("x"), VLLMNotFoundError("x"), VLLMServerError("x")])
def test_what_is_not_known_as_the_clients_passes(raised: Exception) -> None:
    def read() -> None:
        raise raised

    with pytest.raises(type(raised)) as caught:
        reads_request(read)()
    assert caught.value is raised


def test_a_failed_validation_of_a_model_names_its_field_and_never_the_input() -> None:
    class Video(pydantic.BaseModel):
        width: int

    with pytest.raises(VLLMValidationError) as caught:
        reads_request(Video)(width="rejected-4711")
    assert caught.value.parameter == "width"
    assert "rejected-4711" not in to_details(caught.value).message


def test_a_seam_that_knows_the_parameter_names_it() -> None:
    with pytest.raises(VLLMValidationError) as caught:
        reads_request(int, parameter="seed")("x")
    assert caught.value.parameter == "seed"


@pytest.mark.parametrize("value", [None, 5, "5", 5.0])
def test_what_int_reads_is_an_integer(value: object) -> None:
    seams.check_integer(value, parameter="seed")


@pytest.mark.parametrize("value", ["rejected-4711", [], {}, float("inf"), float("nan")])
def test_what_int_does_not_read_is_the_clients_mistake(value: object) -> None:
    with pytest.raises(VLLMValidationError) as caught:
        seams.check_integer(value, parameter="seed")
    assert to_details(caught.value).message == "seed must be an integer."


@pytest.mark.parametrize("value", [None, 0, 64, "64", 64.0])
def test_a_side_is_an_integer(value: object) -> None:
    seams.check_side(value, parameter="height")


@pytest.mark.parametrize(
    "value", ["rejected-4711", "9" * 5_000, [1], {}, 0.5, 64.5, True, float("inf"), float("nan"), -64, "-64"]
)
def test_another_side_is_the_clients_mistake(value: object) -> None:
    with pytest.raises(VLLMValidationError) as caught:
        seams.check_side(value, parameter="height")
    assert caught.value.parameter == "height"
    assert "rejected-4711" not in to_details(caught.value).message


HALF = "\ud800"


class ForAModel(msgspec.Struct):
    stop: object = None
    extra_args: object = None


@dataclass
class ForDiffusion:
    generator_device: str | None = None
    lora_request: object = None


DEEP: list[object] = []
for _ in range(5_000):
    DEEP = [DEEP]


def test_text_of_a_request_may_have_any_character() -> None:
    params = [ForAModel("é😀", {"a": [1, DEEP]}), ForDiffusion("cpu", ForAModel()), None]
    seams.check_text("é", {"prompt": "😀", "prompt_token_ids": [1]}, params)
    seams.check_text("a", HALF, [])  # its reader says so


@pytest.mark.parametrize(
    ("request_id", "prompt", "params", "parameter"),
    [
        (f"chatcmpl-{HALF}", "x", ForAModel(), "request_id"),
        ("a", {"prompt": "x", "negative_prompt": HALF}, ForAModel(), "negative_prompt"),
        ("a", "x", ForAModel(stop=["x", HALF]), "stop"),
        ("a", "x", ForAModel(extra_args={HALF: 1}), "extra_args"),
        ("a", "x", ForAModel(extra_args={"a": [1, ({"b": HALF},)]}), "extra_args"),
        ("a", "x", ForDiffusion(generator_device=HALF), "generator_device"),
        ("a", "x", ForDiffusion(lora_request=ForAModel(stop=HALF)), "lora_request"),
    ],
)
def test_half_a_character_is_the_clients_mistake(
    request_id: str, prompt: object, params: object, parameter: str
) -> None:
    with pytest.raises(VLLMValidationError) as caught:
        seams.check_text(request_id, prompt, [ForAModel(), params])
    assert caught.value.parameter == parameter


@pytest.mark.parametrize("fps", [None, 1, 24, 23.976, 2**31 - 1])
def test_the_encoder_holds_a_frame_rate(fps: float | None) -> None:
    seams.check_frame_rate(fps, parameter="fps")


@pytest.mark.parametrize("fps", [2**31, 2.0**63, 1_000_000.3333, float("inf"), float("nan")])
def test_a_frame_rate_that_the_encoder_cannot_hold_is_the_clients_mistake(fps: float) -> None:
    with pytest.raises(VLLMValidationError) as caught:
        seams.check_frame_rate(fps, parameter="fps")
    assert caught.value.parameter == "fps"


@pytest.mark.parametrize("options", [None, {}, {"preset": "fast", "crf": "18"}])
def test_codec_options_map_text_to_text(options: object) -> None:
    seams.check_codec_options({"video_codec_options": options})
    seams.check_codec_options({})


@pytest.mark.parametrize("options", ["fast", 5, [], {"preset": 5}, {"preset": None}])
def test_other_codec_options_are_the_clients_mistake(options: object) -> None:
    with pytest.raises(VLLMValidationError) as caught:
        seams.check_codec_options({"video_codec_options": options})
    assert caught.value.parameter == "extra_params.video_codec_options"


def encoder(raised: Exception) -> Callable[[], None]:
    def encode() -> None:
        raise raised

    return encode


REFUSED = type("ArgumentError", (ValueError,), {"__module__": "av.error"})("avcodec_open2 private")


def test_options_that_the_encoder_refuses_are_the_clients_mistake() -> None:
    chosen = {"video_codec_options": {"preset": "nope"}}
    with pytest.raises(VLLMValidationError) as caught:
        seams.with_codec_options_of(encoder(REFUSED), chosen)()
    assert "private" not in str(caught.value)


@pytest.mark.parametrize(
    ("raised", "extra_params"),
    [(REFUSED, None), (REFUSED, {}), (ValueError("no frames"), {"video_codec_options": {"preset": "fast"}})],
)
def test_every_other_failure_of_the_encoder_is_the_servers(raised: Exception, extra_params: dict[str, object]) -> None:
    with pytest.raises(type(raised)) as caught:
        seams.with_codec_options_of(encoder(raised), extra_params)()
    assert caught.value is raised


@pytest.mark.parametrize("device", ["nonsense", "", "meta", [1]], ids=str)
def test_a_chosen_device_that_torch_does_not_have_is_the_clients_mistake(device: Any) -> None:
    with pytest.raises(VLLMValidationError) as caught:
        seams.on_chosen_device(torch.Generator, device)(device=device)
    assert caught.value.parameter == "generator_device"
    assert "nonsense" not in str(caught.value)


def test_a_chosen_device_that_torch_has_is_used() -> None:
    assert seams.on_chosen_device(torch.Generator, "cpu")(device="cpu").device.type == "cpu"


@pytest.mark.parametrize(
    ("raised", "chosen"),
    [(RuntimeError("x"), None), (torch.OutOfMemoryError("x"), "cuda"), (KeyError("x"), "cpu")],
)
def test_a_device_that_fails_otherwise_is_the_servers(raised: Exception, chosen: str | None) -> None:
    with pytest.raises(type(raised)) as caught:
        seams.on_chosen_device(encoder(raised), chosen)()
    assert caught.value is raised


def test_what_is_read_is_returned() -> None:
    def read(prompt: str, *, limit: int) -> str:
        return f"{prompt} {limit}"

    assert reads_request(read)("a", limit=3) == "a 3"


def test_a_handler_that_is_there_stays() -> None:
    handlers = {"serving_tokenization": object(), "openai_serving_completion": object()}
    state = State(dict(handlers))
    fill_missing_handlers(state)
    assert {name: getattr(state, name) for name in handlers} == handlers


def test_an_absent_handler_is_none_for_the_routes_that_answer_501_then() -> None:
    state = State()
    fill_missing_handlers(state)
    assert state.openai_serving_completion is None
    assert state.serving_generative_scoring is None


@pytest.mark.parametrize("state", [State(), State({"serving_tokenization": None})])
def test_using_an_absent_tokenizer_is_503_for_good(state: State) -> None:
    fill_missing_handlers(state)
    with pytest.raises(OmniServiceUnavailableError) as caught:
        state.serving_tokenization.create_tokenize()
    assert caught.value.permanent


class Model(pydantic.BaseModel):
    size: int


def invalid(value: object) -> pydantic.ValidationError:
    with pytest.raises(pydantic.ValidationError) as caught:
        Model.model_validate({"size": value})
    return caught.value


def test_request_error_types_what_request_reading_code_raises() -> None:
    exc = request_error(ValueError("n is bad: see /etc/x"), parameter="n")
    assert isinstance(exc, upstream.VLLMValidationError)
    assert (exc.args, exc.parameter) == (("n is bad: see <path>",), "n")
    assert request_error(invalid("private")).args == (
        "size: Input should be a valid integer, unable to parse string as an integer",
    )
    assert request_error(ValueError()).args == (seams.UNREADABLE,)
    assert request_error(TypeError("Engine.__init__() got an unexpected keyword argument")).args == (seams.UNREADABLE,)


@pytest.mark.parametrize(
    "exc", [upstream.VLLMNotFoundError("no"), upstream.EngineDeadError(), RuntimeError("no"), NotImplementedError()]
)
def test_request_error_leaves_everything_else_alone(exc: Exception) -> None:
    assert request_error(exc) is exc


def test_other_types_are_the_clients_mistake_where_the_seam_says_so() -> None:
    def read(parts: Any) -> Any:
        return parts.kind

    seam = reads_request(read, parameter="messages", also=(AttributeError,))
    with pytest.raises(VLLMValidationError) as caught:
        seam(5)
    assert (caught.value.args[0], caught.value.parameter) == (seams.UNREADABLE, "messages")
    assert seam(SimpleNamespace(kind="text")) == "text"


@dataclass
class OfADiffusionStage:
    height: int | None = None
    strength: float | None = None
    more: dict[str, Any] = field(default_factory=dict)
    other: SimpleNamespace | None = None


@pytest.mark.parametrize(
    "values",
    [
        {"seed": "x"},
        {"temperature": "hot"},
        {"temperature": None},
        {"extra_args": 5},
        {"bad_words": [5]},
        {"stop": {"a": 1}},
        {"structured_outputs": {"json": "{"}},
        {"max_tokens": 2**70},
        {"nobody_knows": 1},
    ],
    ids=str,
)
def test_parameters_of_a_stage_that_would_not_arrive_are_the_clients_mistake(values: dict[str, Any]) -> None:
    with pytest.raises(VLLMValidationError) as caught:
        reads_stage_parameters(SamplingParams)(**values)
    assert to_details(caught.value).status_code == 400
    assert str(next(iter(values.values()))) not in to_details(caught.value).message


def test_what_vllm_says_itself_about_a_parameter_stays() -> None:
    with pytest.raises(VLLMValidationError) as named:
        reads_stage_parameters(SamplingParams)(temperature=-3)
    assert named.value.parameter == "temperature"
    with pytest.raises(VLLMValidationError) as unnamed:
        reads_stage_parameters(SamplingParams)(n=-1)
    assert (unnamed.value.args[0], unnamed.value.parameter) == ("n must be at least 1, got -1.", "sampling_params_list")


def test_parameters_of_a_stage_that_are_right_are_as_they_were() -> None:
    given = {"temperature": 1, "max_tokens": 5, "stop": ["x"], "extra_args": {"a": [1]}, "seed": None}
    assert reads_stage_parameters(SamplingParams)(**given) == SamplingParams(**given)
    assert reads_stage_parameters(OfADiffusionStage)(height=5, strength=1, more={"a": 1}) == OfADiffusionStage(
        5, 1, {"a": 1}
    )


@pytest.mark.parametrize(
    "values", [{"height": "x"}, {"height": 2.5}, {"strength": "x"}, {"other": {"x": 1}}, {"nobody_knows": 1}], ids=str
)
def test_parameters_of_a_diffusion_stage_have_their_types(values: dict[str, Any]) -> None:
    with pytest.raises(VLLMValidationError):
        reads_stage_parameters(OfADiffusionStage)(**values)


@pytest.mark.parametrize("given", [5, "x", {"a": 1}, [{}, {}, {}]], ids=str)
def test_a_list_of_parameters_is_one_and_has_no_more_entries_than_stages(given: object) -> None:
    with pytest.raises(VLLMValidationError) as caught:
        check_stage_parameters(given, stages=2)
    assert caught.value.parameter == "sampling_params_list"


@pytest.mark.parametrize(("given", "stages"), [([], 2), ([{}, {}], 2), ([{}, {}, {}], 0)])
def test_a_list_of_parameters_may_be_shorter(given: object, stages: int) -> None:
    check_stage_parameters(given, stages=stages)


@pytest.mark.parametrize("call", [{}, {"id": 5}, 5])
def test_a_tool_call_that_vllm_cannot_shorten_is_400(call: Any) -> None:
    """The protocol refuses such a call before (seam_cases.py), so that no request of the rig gets here."""
    request = SimpleNamespace(messages=[{"role": "assistant", "tool_calls": [call]}])
    read = reads_request(truncate_tool_call_ids, parameter="messages", also=(AttributeError, KeyError))
    with pytest.raises(VLLMValidationError) as caught:
        read(request)
    assert caught.value.parameter == "messages"


@pytest.mark.parametrize(("raised", "status"), [(ValueError("x"), 400), (RuntimeError("x"), 500)])
def test_a_stream_that_reads_what_the_client_sends(raised: Exception, status: int) -> None:
    closed = []

    async def stream() -> AsyncGenerator[int, None]:
        try:
            yield 1
            raise raised
        finally:
            closed.append(True)

    async def drawn() -> list[object]:
        items: list[object] = []
        try:
            async for item in reads_stream(stream(), parameter="audio"):
                items.append(item)
        except Exception as exc:
            items.append(to_details(exc).status_code)
        return items

    assert asyncio.run(drawn()) == [1, status]
    assert closed


def test_a_stream_that_is_left_is_closed_at_once() -> None:
    closed = []

    async def stream() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            closed.append(True)

    async def leave() -> None:
        reading = reads_stream(stream(), parameter="audio")
        await anext(reading)
        await reading.aclose()
        assert closed

    asyncio.run(leave())
