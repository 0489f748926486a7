# SPDX-License-Identifier: Apache-2.0
"""Raw exceptions and returned error responses become typed where they are known to be one or the other."""

import asyncio
import base64
import functools
import io
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx
import jinja2
import pydantic
import pytest
import torch
from PIL import Image
from starlette.datastructures import State
from vllm import SamplingParams
from vllm.connections import global_http_connection
from vllm.entrypoints.chat_utils import AsyncMultiModalContentParser, _parse_chat_message_content_parts
from vllm.exceptions import (
    VLLMNotFoundError,
    VLLMServerError,
    VLLMUnprocessableEntityError,
    VLLMValidationError,
)
from vllm.multimodal.media import MediaConnector
from vllm.tokenizers.mistral import truncate_tool_call_ids

from vllm_omni_errors import OmniErrorDetails, OmniServiceUnavailableError, exceptions, seams, to_details, upstream
from vllm_omni_errors.seams import (
    check_stage_parameters,
    converts_media,
    decodes_media,
    fetches_media,
    fill_missing_handlers,
    media_error,
    reads_messages,
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


@pytest.mark.parametrize("options", [None, {}, {"preset": "fast", "crf": "18"}])
def test_codec_options_map_text_to_text(options: object) -> None:
    seams.check_codec_options({"video_codec_options": options})
    seams.check_codec_options({})


@pytest.mark.parametrize("options", ["fast", 5, [], {"preset": 5}, {"preset": None}])
def test_other_codec_options_are_the_clients_mistake(options: object) -> None:
    with pytest.raises(VLLMValidationError) as caught:
        seams.check_codec_options({"video_codec_options": options})
    assert caught.value.parameter == "extra_params.video_codec_options"


def having(exc: Exception, **attributes: object) -> Exception:
    vars(exc).update(attributes)
    return exc


def foreign(name: str, package: str, base: type[Exception] = Exception, **attributes: object) -> Exception:
    return having(type(name, (base,), {"__module__": package})("private"), **attributes)


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
    [(RuntimeError("x"), None), (foreign("OutOfMemoryError", "torch", RuntimeError), "cuda"), (KeyError("x"), "cpu")],
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


def answered(status: int) -> httpx.HTTPStatusError:
    request = httpx.Request("GET", "http://media")
    return httpx.HTTPStatusError("private", request=request, response=httpx.Response(status, request=request))


def unreachable(url: str) -> httpx.ConnectError:
    return httpx.ConnectError("private", request=httpx.Request("GET", url))


PERMANENT: list[Callable[[], Exception]] = [
    *(lambda status=status: answered(status) for status in (302, 400, 401, 403, 404, 410)),
    lambda: foreign("ClientResponseError", "aiohttp.client_exceptions", status=404),
    lambda: foreign("InvalidURL", "requests.exceptions", ValueError),
    lambda: foreign("InvalidUrlClientError", "aiohttp.client_exceptions"),
    lambda: foreign("IDNAError", "idna.core", UnicodeError),
    *(lambda port=port: unreachable(f"http://media:{port}/") for port in (-1, 65_536, 99_999)),
    lambda: foreign("MediaDownloadSizeExceededError", "vllm.connections", ValueError),
    lambda: foreign("HTTPResponseSizeExceededError", "vllm.connections", upstream.VLLMValidationError),
    lambda: foreign("UnidentifiedImageError", "PIL", OSError),
    lambda: foreign("LibsndfileError", "soundfile", RuntimeError),
    lambda: foreign("UFuncTypeError", "numpy._core._exceptions", TypeError),
    lambda: upstream.VLLMValidationError("Maximum file size exceeded", parameter="audio_filesize_mb"),
    lambda: OSError("image file is truncated"),
    lambda: ValueError("The URL must be either a HTTP, data or file URL."),
    lambda: NotImplementedError("Only base64 data URLs are supported for now."),
    lambda: FileNotFoundError(2, "private"),
    lambda: upstream.VLLMUnprocessableEntityError("Failed to fetch media from URL: Invalid URL", parameter="image_url"),
]
TRANSIENT: list[Callable[[], Exception]] = [
    *(lambda status=status: answered(status) for status in (408, 429, 500, 503)),
    lambda: foreign("ClientResponseError", "aiohttp.client_exceptions", status=503),
    lambda: foreign("ClientConnectorError", "aiohttp.client_exceptions", OSError),
    lambda: foreign("gaierror", "socket", OSError),
    *(lambda port=port: unreachable(f"http://media{port}/") for port in ("", ":0", ":65535")),
    lambda: TimeoutError(),
    lambda: ConnectionResetError(104, "private"),
    lambda: OSError(28, "no space"),
    lambda: foreign("_ArrayMemoryError", "numpy._core._exceptions", MemoryError),
    lambda: AttributeError("private"),
]


@pytest.mark.parametrize("make", PERMANENT)
def test_case_m15_media_that_will_never_be_readable_is_422(make: Callable[[], Exception]) -> None:
    exc = media_error(make(), parameter="ref_audio")
    assert isinstance(exc, upstream.VLLMUnprocessableEntityError)
    assert exc.parameter == "ref_audio"
    assert "private" not in str(exc)
    assert to_details(exc).status_code == 422


@pytest.mark.parametrize("make", TRANSIENT)
def test_case_m15_media_that_may_be_readable_later_is_500(make: Callable[[], Exception]) -> None:
    exc = media_error(make(), parameter="ref_audio")
    assert isinstance(exc, exceptions.OmniServerError)
    assert to_details(exc) == OmniErrorDetails(seams.TRANSIENT_MEDIA, "server", 500, "InternalServerError")


def test_other_typed_media_errors_pass() -> None:
    exc = upstream.VLLMValidationError("too many images", parameter="image")
    assert media_error(exc, parameter="other") is exc


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


# ---- media, messages and streams that vLLM's code reads --------------------------------------------------------------


def data_url(content: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(content).decode()


def png() -> bytes:
    file = io.BytesIO()
    Image.effect_noise((64, 64), 9).save(file, "PNG")
    return file.getvalue()


PNG = png()
NOT_BASE64 = "data:image/png,xx"
LOCAL = "file:///etc/passwd"
CONNECTOR = MediaConnector()
"""vLLM's own, which may not read local files."""


def error_of(awaitable: Awaitable[object]) -> BaseException:
    async def caught() -> object:
        try:
            return await awaitable
        except Exception as exc:
            return exc

    found = asyncio.run(caught())
    assert isinstance(found, BaseException), found
    return found


@pytest.mark.parametrize(
    "url", [NOT_BASE64, LOCAL, "data:image/png;base64,AAAA", "data:", "nothing", "", 5, None, ["x"]]
)
def test_a_url_that_vllm_does_not_read_is_422(url: Any) -> None:
    """M15: whatever type vLLM's connector raises for it."""
    details = to_details(error_of(fetches_media(CONNECTOR.fetch_image_async, parameter="image_url")(url)))
    assert (details.status_code, details.parameter) == (422, "image_url")
    assert "passwd" not in details.message


@pytest.mark.parametrize("call", [{}, {"id": 5}, 5])
def test_a_tool_call_that_vllm_cannot_shorten_is_400(call: Any) -> None:
    """The protocol refuses such a call before (seam_cases.py), so that no request of the rig gets here."""
    request = SimpleNamespace(messages=[{"role": "assistant", "tool_calls": [call]}])
    read = reads_request(truncate_tool_call_ids, parameter="messages", also=(AttributeError, KeyError))
    with pytest.raises(VLLMValidationError) as caught:
        read(request)
    assert caught.value.parameter == "messages"


def test_media_that_cannot_be_fetched_now_is_a_server_error() -> None:
    async def fetch(url: str) -> object:
        raise TimeoutError

    details = to_details(error_of(fetches_media(fetch, parameter="image_url")("http://x/")))
    assert (details.status_code, details.message) == (500, seams.TRANSIENT_MEDIA)


def messages_with(part: dict[str, Any]) -> list[list[dict[str, Any]]]:
    return [[{"role": "system", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "x"}, part]}]]


class Tracker:
    """Of the media of a conversation, as vLLM's: its parser hands each item over as what fetches it."""

    allowed_local_media_path = ""
    allowed_media_domains = None
    video_processor_name = None
    model_config = SimpleNamespace(
        enable_prompt_embeds=False, get_multimodal_config=lambda: SimpleNamespace(enable_mm_embeds=True)
    )

    def __init__(self, media_io_kwargs: dict[str, Any] | None) -> None:
        self.media_io_kwargs = media_io_kwargs
        self.items: list[Callable[[], Awaitable[object]]] = []

    def create_parser(self, **_: Any) -> AsyncMultiModalContentParser:
        return AsyncMultiModalContentParser(self)

    def add(self, modality: str, item: Callable[[], Awaitable[object]]) -> None:
        self.items.append(item)


async def render_media(conversations: Any, media_io_kwargs: dict[str, Any] | None = None) -> object:
    """As vLLM's renderer does: its own parser of parts, and each item in a task of its own."""
    tracker = Tracker(media_io_kwargs)
    parts = conversations[0][1]["content"]
    _parse_chat_message_content_parts("user", parts, tracker, wrap_dicts=True, interleave_strings=False)
    return await asyncio.gather(*(item() for item in tracker.items))


@pytest.fixture(scope="module")
def watched() -> Iterator[None]:
    """vLLM's connectors convert, as in a server."""
    upstream.watch_media_connectors(converts_media)
    yield
    upstream.watch_media_connectors(lambda connector: None)


def url_part(name: str, url: str) -> dict[str, Any]:
    return {"type": name, name: {"url": url}}


def embeds(name: str, content: bytes) -> dict[str, Any]:
    return {"type": name, name: base64.b64encode(content).decode()}


SOUND = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
BROKEN = base64.b64encode(b"broken").decode()
ONE_PICTURE = data_url(PNG)
OF_TOO_MANY_PIXELS = data_url(b"\x00\x01\x02 not \xff" * 20)
"""For PIL an image of 800 million pixels, which it refuses with an exception of its own."""

UNREADABLE_PARTS = {
    "image that is none": url_part("image_url", f"data:image/png;base64,{BROKEN}"),
    "image that is truncated": url_part("image_url", data_url(PNG[: len(PNG) // 2])),
    "image of too many pixels": url_part("image_url", OF_TOO_MANY_PIXELS),
    "image that is empty": url_part("image_url", "data:image/png;base64,"),
    "image that is not of base64": url_part("image_url", "data:image/png;base64,@@@"),
    "image that says it is not of base64": url_part("image_url", NOT_BASE64),
    "image without data": url_part("image_url", "data:image/png"),
    "image of a local file": url_part("image_url", LOCAL),
    "image of no URL": url_part("image_url", "http://[::1/x.png"),
    "image of another scheme": url_part("image_url", "ftp://host/x.png"),
    "image whose part has no type": {"image_url": f"data:image/png;base64,{BROKEN}"},
    "audio that is none": url_part("audio_url", f"data:audio/wav;base64,{BROKEN}"),
    "audio without sound": url_part("audio_url", ONE_PICTURE),
    "audio in the message": SOUND,
    "video that is none": url_part("video_url", f"data:video/mp4;base64,{BROKEN}"),
    "video of one picture": url_part("video_url", ONE_PICTURE),
    "video of frames that are none": url_part("video_url", f"data:video/jpeg;base64,{BROKEN}"),
    "embeddings that are none": embeds("image_embeds", b"broken"),
    "embeddings of an archive that is none": embeds("image_embeds", b"PK\x03\x04 broken"),
    "embeddings of audio": embeds("audio_embeds", b"broken"),
}


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("name", UNREADABLE_PARTS)
def test_media_of_a_message_that_cannot_be_read_is_422(name: str) -> None:
    """M15: by vLLM's own parser, connector and decoders, whatever they raise."""
    part = UNREADABLE_PARTS[name]
    details = to_details(error_of(reads_messages(render_media)(messages_with(part))))
    assert (details.status_code, details.parameter) == (422, part.get("type", "image_url"))
    assert "broken" not in details.message


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("options", [{"image": {"rgba_background_color": 5}}, {"image": {"image_mode": 5}}])
def test_what_the_request_says_about_its_media_is_not_of_the_media(options: dict[str, Any]) -> None:
    render = functools.partial(reads_messages(render_media), media_io_kwargs=options)
    assert to_details(error_of(render(messages_with(url_part("image_url", ONE_PICTURE))))).status_code == 400


@pytest.mark.usefixtures("watched")
def test_media_of_a_message_that_can_be_read_is() -> None:
    assert asyncio.run(reads_messages(render_media)(messages_with(url_part("image_url", ONE_PICTURE))))


@pytest.mark.usefixtures("watched")
def test_media_of_vllms_own_routes_keeps_its_type() -> None:
    """Contract, section 4: there nothing says that its messages are read for a route of vLLM-Omni."""
    assert type(error_of(render_media(messages_with(UNREADABLE_PARTS["image that is none"])))) is ValueError


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("fault", [TimeoutError(), ConnectionResetError(104, "private")])
def test_media_of_a_message_that_cannot_be_fetched_now_is_500(
    monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    async def fail(*_: Any, **__: Any) -> bytes:
        raise fault

    monkeypatch.setattr(global_http_connection, "async_get_bytes", fail)
    details = to_details(error_of(reads_messages(render_media)(messages_with(url_part("video_url", "http://host/x")))))
    assert (details.status_code, details.message) == (500, seams.TRANSIENT_MEDIA)


@pytest.mark.parametrize(
    ("raised", "status", "parameter"),
    [
        (ValueError("x"), 400, None),
        (jinja2.TemplateError("x"), 400, None),
        (RecursionError(), 400, "chat_template"),
        (VLLMNotFoundError("x"), 404, None),
        (RuntimeError("x"), 500, None),
        (NotImplementedError("x"), 500, None),
    ],
)
def test_what_rendering_raises_is_the_clients_if_it_is_about_the_request(
    raised: Exception, status: int, parameter: str | None
) -> None:
    async def render(conversations: Any) -> object:
        raise raised

    details = to_details(error_of(reads_messages(render)(messages_with({"type": "text", "text": "x"}))))
    assert (details.status_code, details.parameter) == (status, parameter)


def test_a_message_that_is_no_mapping_is_the_clients_too() -> None:
    """vLLM's protocol lets a message of the Harmony format through, which its renderer cannot read."""

    async def render(conversations: Any) -> object:
        return conversations[0][0]["role"]

    details = to_details(error_of(reads_messages(render)([[SimpleNamespace(role="user")]])))
    assert (details.status_code, details.parameter) == (400, None)


def test_what_wrapped_functions_return_is_returned() -> None:
    async def give(argument: Any) -> object:
        return argument

    assert asyncio.run(fetches_media(give, parameter="x")("url")) == "url"
    assert asyncio.run(reads_messages(give)([[{"content": "hi"}]])) == [[{"content": "hi"}]]
    assert decodes_media(sorted)([2, 1]) == [1, 2]


def test_a_picture_that_breaks_while_it_is_read_is_422() -> None:
    """M15: PIL opens a truncated file, and reads its pixels later."""
    picture = Image.open(io.BytesIO(PNG[:200]))
    with pytest.raises(VLLMUnprocessableEntityError):
        decodes_media(picture.load)()


def test_a_failure_that_says_nothing_of_the_media_passes() -> None:
    def fail() -> None:
        raise RuntimeError("x")

    with pytest.raises(RuntimeError):
        decodes_media(fail)()


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
