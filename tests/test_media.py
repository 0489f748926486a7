# SPDX-License-Identifier: Apache-2.0
"""Media that cannot be had or read is 422 where that is for good, and 500 where it may help to try again."""

import asyncio
import base64
import functools
import io
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import jinja2
import pytest
from PIL import Image
from vllm.connections import global_http_connection
from vllm.entrypoints.chat_utils import AsyncMultiModalContentParser, _parse_chat_message_content_parts
from vllm.exceptions import VLLMNotFoundError, VLLMUnprocessableEntityError
from vllm.multimodal.media import MediaConnector

from vllm_omni_errors import OmniErrorDetails, exceptions, to_details, upstream
from vllm_omni_errors.media import (
    TRANSIENT_MEDIA,
    converts_media,
    decodes_media,
    fetches_media,
    media_error,
    reads_messages,
)


def having(exc: Exception, **attributes: object) -> Exception:
    vars(exc).update(attributes)
    return exc


def foreign(name: str, package: str, base: type[Exception] = Exception, **attributes: object) -> Exception:
    return having(type(name, (base,), {"__module__": package})("private"), **attributes)


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
    assert to_details(exc) == OmniErrorDetails(TRANSIENT_MEDIA, "server", 500, "InternalServerError")


def test_other_typed_media_errors_pass() -> None:
    exc = upstream.VLLMValidationError("too many images", parameter="image")
    assert media_error(exc, parameter="other") is exc


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


def test_media_that_cannot_be_fetched_now_is_a_server_error() -> None:
    async def fetch(url: str) -> object:
        raise TimeoutError

    details = to_details(error_of(fetches_media(fetch, parameter="image_url")("http://x/")))
    assert (details.status_code, details.message) == (500, TRANSIENT_MEDIA)


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
    assert (details.status_code, details.message) == (500, TRANSIENT_MEDIA)


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
