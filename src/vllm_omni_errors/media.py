# SPDX-License-Identifier: Apache-2.0
"""A request's media, and the messages that hold it: what fetching, decoding or rendering them raises becomes typed."""

import functools
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

from . import convert, upstream
from .details import is_integer
from .exceptions import OmniServerError
from .seams import request_error

__all__ = ["converts_media", "decodes_media", "fetches_media", "media_error", "reads_messages"]

TRANSIENT_MEDIA = "The media could not be fetched; try again."
UNDECODABLE = "The media cannot be decoded."
INVALID_URL = "The media's URL is not valid."
NO_LOCAL_FILES = "This server does not read local files."

_P = ParamSpec("_P")
_T = TypeVar("_T")

_TRANSIENT_STATUSES = (408, 429)
_NETWORK_PACKAGES = {"aiohttp", "anyio", "httpcore", "httpx", "requests", "socket", "ssl", "urllib3"}
_DECODER_PACKAGES = {
    "PIL",
    "audioread",
    "av",
    "binascii",
    "cv2",
    "imageio",
    "librosa",
    "numpy",
    "soundfile",
    "torchcodec",
}
_INVALID_URLS = {
    "IDNAError",
    "InvalidSchema",
    "InvalidURL",
    "InvalidUrlClientError",
    "LocationParseError",
    "MissingSchema",
    "UnsupportedProtocol",
}
_PORTS = range(65_536)
_TOO_LARGE = {"HTTPResponseSizeExceededError", "MediaDownloadSizeExceededError"}
_AUDIO_SIZE = "audio_filesize_mb"  # the parameter of vLLM's validation error (``multimodal/media/audio.py:533``)
_LOCAL_FILE_ERRORS = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


def media_error(exc: Exception, *, parameter: str | None) -> Exception:
    """What a failure to fetch or decode the request's media becomes. The caller raises it ``from exc``.

    422 ``VLLMUnprocessableEntityError`` if the media is permanently inaccessible or undecodable: an invalid URL, an
    HTTP 4xx other than 408 and 429, a redirect that is not followed, over the size limit, bytes that do not decode.
    Otherwise 500, with the advice to try again (contract, section 4). A typed exception passes unchanged, but a 422
    names our parameter, not upstream's.
    """
    reason = _permanent_reason(exc)
    if reason is not None:
        return upstream.VLLMUnprocessableEntityError(reason, parameter=parameter)
    if isinstance(exc, upstream.VLLMError):
        return exc
    return OmniServerError(TRANSIENT_MEDIA)


def _permanent_reason(exc: Exception) -> str | None:
    names = {cls.__name__ for cls in type(exc).__mro__}
    package = type(exc).__module__.partition(".")[0]
    status = _http_status(exc)
    if isinstance(exc, upstream.VLLMUnprocessableEntityError):
        return convert.authored(exc)
    if names & _TOO_LARGE or convert.attribute(exc, "parameter", str) == _AUDIO_SIZE:
        return "The media is larger than this server accepts."
    if isinstance(exc, upstream.VLLMError | MemoryError):
        return None
    if status is not None:
        permanent = 300 <= status < 500 and status not in _TRANSIENT_STATUSES
        return f"The media cannot be fetched: its server answers {status}." if permanent else None
    if names & _INVALID_URLS or _has_no_such_port(exc) or isinstance(exc, NotImplementedError):  # data URL, not base64
        return INVALID_URL
    if package in _NETWORK_PACKAGES or isinstance(exc, ConnectionError | TimeoutError):
        return None
    if isinstance(exc, _LOCAL_FILE_ERRORS):
        return "The media cannot be read."
    if package in _DECODER_PACKAGES or isinstance(exc, ValueError | EOFError | SyntaxError) or _is_plain_os_error(exc):
        return UNDECODABLE
    return None


def _http_status(exc: Exception) -> int | None:
    """aiohttp keeps the status on the exception, requests and httpx on its response, urllib under ``code``."""
    status = convert.attribute(exc, "status", int)
    if status is None:
        response = convert.attribute(exc, "response", object)
        status = getattr(response, "status_code", None)
    return status if is_integer(status) else None


def _has_no_such_port(exc: Exception) -> bool:
    """httpx tries ports that do not exist; other clients refuse such a URL themselves."""
    url = getattr(convert.attribute(exc, "request", object), "url", None)
    port = getattr(url, "port", None)
    return is_integer(port) and port not in _PORTS


def _is_plain_os_error(exc: Exception) -> bool:
    return isinstance(exc, OSError) and exc.errno is None  # PIL's truncated and unidentified images


def fetches_media(function: Callable[[str], Awaitable[_T]], *, parameter: str) -> Callable[[str], Awaitable[_T]]:
    """A method of vLLM's media connector: what it raises about the URL that the client gave is `media_error`'s."""

    async def fetching(url: str) -> _T:
        if not isinstance(url, str):
            raise upstream.VLLMUnprocessableEntityError(INVALID_URL, parameter=parameter)
        try:
            return await function(url)
        except Exception as exc:
            error = _url_error(exc, url, parameter)
            if error is exc:
                raise
            raise error from exc

    return fetching


def _url_error(exc: Exception, url: str, parameter: str) -> Exception:
    return _not_read(exc, url, parameter) or media_error(exc, parameter=parameter)


def _not_read(exc: Exception, url: str, parameter: str) -> Exception | None:
    """What vLLM refuses with a type that says something else: a local file where none is allowed, and data that is not
    base64 (``multimodal/media/connector.py:340`` and ``:328``)."""
    scheme = url[:5].lower()
    if type(exc) is RuntimeError and scheme == "file:":
        return upstream.VLLMUnprocessableEntityError(NO_LOCAL_FILES, parameter=parameter)
    if type(exc) is NotImplementedError and scheme == "data:":
        return upstream.VLLMUnprocessableEntityError(INVALID_URL, parameter=parameter)
    return None


def decodes_media(function: Callable[_P, _T], *, parameter: str | None = None) -> Callable[_P, _T]:
    """A function that reads the media of a request, which may only now turn out to be broken: that is 422."""

    @functools.wraps(function)
    def decoding(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except Exception as exc:
            reason = _permanent_reason(exc)
            if reason is None:
                raise
            raise upstream.VLLMUnprocessableEntityError(reason, parameter=parameter) from exc

    return decoding


NESTED_TEMPLATE = "The chat template is nested too deeply."
_URL_PARTS = ("image_url", "audio_url", "video_url")
_EMBEDDINGS = ("image", "audio", "video")
_rendered: ContextVar[Any] = ContextVar("rendered", default=None)
"""The conversations that are rendered for a route of vLLM-Omni."""


def reads_messages(render: Callable[..., Awaitable[_T]]) -> Callable[..., Awaitable[_T]]:
    """A method that renders conversations: a raw exception of it is the client's mistake.

    Media is `media_error`'s (`converts_media`); what `request_error` does not know, and typed exceptions, pass.
    """

    @functools.wraps(render)
    async def rendering(conversations: Any, *args: Any, **kwargs: Any) -> _T:
        token = _rendered.set(conversations)
        try:
            return await render(conversations, *args, **kwargs)
        except RecursionError as exc:
            raise upstream.VLLMValidationError(NESTED_TEMPLATE, parameter="chat_template") from exc
        except Exception as exc:
            error = request_error(exc)
            if error is exc:
                raise
            raise error from exc
        finally:
            _rendered.reset(token)

    return rendering


def converts_media(connector: Any) -> None:
    """What a media connector raises is `media_error`'s, if vLLM made it for messages that `reads_messages` renders.

    Other connectors are left alone: on vLLM's own routes its mapping stays. What is converted is loading a URL, not
    what the request says about it (``media_io_kwargs``), which the connector reads before.
    """
    conversations = _rendered.get()
    if conversations is None:
        return
    load = connector.load_from_url_async

    async def loading(url: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return await load(url, *args, **kwargs)
        except Exception as exc:
            names = (name for name, given in _urls_in(conversations) if given == url)
            error = _url_error(exc, url, next(names, "input_audio"))  # of whose data vLLM makes a URL
            if error is exc or type(exc) is TypeError:  # ``media_io_kwargs`` again
                raise
            raise error from exc

    connector.load_from_url_async = loading
    for kind in _EMBEDDINGS:
        name = f"fetch_{kind}_embedding_async"
        setattr(connector, name, _decodes_embedding(getattr(connector, name), parameter=f"{kind}_embeds"))


def _decodes_embedding(decode: Callable[[str], Awaitable[_T]], *, parameter: str) -> Callable[[str], Awaitable[_T]]:
    async def decoding(data: str) -> _T:
        try:
            return await decode(data)
        except (upstream.VLLMError, MemoryError, OSError):
            raise
        except Exception as exc:  # torch's reader raises RuntimeError for what is not its own
            raise upstream.VLLMUnprocessableEntityError(UNDECODABLE, parameter=parameter) from exc

    return decoding


def _urls_in(conversations: Any) -> Iterator[tuple[str, str]]:
    """Name and URL of every part of the messages that has one; vLLM's protocol also takes messages of another kind."""
    for messages in conversations:
        for message in messages:
            content = message.get("content") if isinstance(message, dict) else None
            for part in content if isinstance(content, list) else ():
                for name in _URL_PARTS if isinstance(part, dict) else ():
                    given = part.get(name)
                    url = given.get("url") if isinstance(given, dict) else given
                    if isinstance(url, str):
                        yield name, url
