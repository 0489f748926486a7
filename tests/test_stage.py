# SPDX-License-Identifier: Apache-2.0
"""What leaves a stage is a record, made and logged once; deadlines are kept; relays change nothing."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import asdict, fields, replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from record_strategies import records

from vllm_omni_errors import convert, stage, upstream, wire
from vllm_omni_errors.details import OmniErrorDetails
from vllm_omni_errors.exceptions import (
    OmniClientError,
    OmniEngineGenerateError,
    OmniNotImplementedError,
    OmniServerError,
    OmniServiceUnavailableError,
    OmniStageTimeoutError,
)
from vllm_omni_errors.stage import deadline, guard, normalize, relay

RECORD = OmniErrorDetails("no", "client", 400, "BadRequestError", "size", "chatcmpl-1", 2)
UNKNOWN = OmniErrorDetails("Internal server error", "server", 500, "InternalServerError")
PRIVATE = "/srv/models/secret/weights.bin hf_abcdefghijklmnopqrstuvwxyz"

Run = Callable[[Callable[[], Any], Callable[..., Any]], Any]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.LogCaptureFixture]:
    """What this process's log is told, whoever is above the logger."""
    monkeypatch.setattr(stage.logger, "propagate", False)
    with caplog.at_level(logging.DEBUG, logger=stage.logger.name):
        stage.logger.addHandler(caplog.handler)
        yield caplog
        stage.logger.removeHandler(caplog.handler)


class RawError(Exception):
    """An exception that nobody typed."""


def raises(exc: BaseException) -> Callable[[], None]:
    def function() -> None:
        raise exc

    return function


# --- every way to use a guard or a deadline: each runs `body` inside it and returns what comes out -------------------


def in_a_block(body: Callable[[], Any], around: Any) -> Any:
    with around:
        return body()


def in_an_asynchronous_block(body: Callable[[], Any], around: Any) -> Any:
    async def run() -> Any:
        async with around:
            return body()

    return asyncio.run(run())


def in_a_function(body: Callable[[], Any], around: Any) -> Any:
    @around
    def function(argument: int, *, keyword: int) -> Any:
        assert (argument, keyword) == (1, 2)
        return body()

    assert function.__name__ == "function"
    return function(1, keyword=2)


def in_a_coroutine_function(body: Callable[[], Any], around: Any) -> Any:
    @around
    async def function(argument: int, *, keyword: int) -> Any:
        assert (argument, keyword) == (1, 2)
        await asyncio.sleep(0)
        return body()

    assert asyncio.iscoroutinefunction(function)
    return asyncio.run(function(1, keyword=2))


def in_a_generator(body: Callable[[], Any], around: Any) -> Any:
    @around
    def function(argument: int, *, keyword: int) -> Iterator[Any]:
        yield argument + keyword
        yield body()

    items = function(1, keyword=2)
    assert next(items) == 3
    return next(items, None)


def in_an_asynchronous_generator(body: Callable[[], Any], around: Any) -> Any:
    @around
    async def function(argument: int, *, keyword: int) -> AsyncIterator[Any]:
        yield argument + keyword
        await asyncio.sleep(0)
        yield body()

    async def run() -> Any:
        items = function(1, keyword=2)
        assert await anext(items) == 3
        return await anext(items, None)

    return asyncio.run(run())


EVERY_WAY = [
    in_a_block,
    in_an_asynchronous_block,
    in_a_function,
    in_a_coroutine_function,
    in_a_generator,
    in_an_asynchronous_generator,
]
every_way = pytest.mark.parametrize("run", EVERY_WAY)


# --- the record's invariants (RFC, section 2), where a stage makes records -------------------------------------------

exceptions_of_nobody = st.sampled_from(
    [Exception, RawError, ValueError, TypeError, RuntimeError, KeyError, OSError, TimeoutError, NotImplementedError]
).flatmap(lambda kind: st.builds(kind, st.text(max_size=20) | st.integers() | st.binary(max_size=8)))


@given(exceptions_of_nobody, st.none() | st.integers(0, 9))
def test_invariant_unknown_exceptions_normalize_to_server_error_500(exc: Exception, stage_id: int | None) -> None:
    stage.logger.disabled = True
    try:
        assert normalize(exc, stage_id=stage_id) == replace(UNKNOWN, stage_id=stage_id)
    finally:
        stage.logger.disabled = False


SECRETS = st.sampled_from(
    [PRIVATE, "sk-" + "a1B2c3D4" * 5, "tensor([[0.1234, 0.5678]])", "data:image/png;base64," + "iVBO" * 20]
)


@given(SECRETS, st.sampled_from(["value", "cause", "text", "input"]))
@example(PRIVATE, "value")
def test_invariant_tracebacks_exceptions_media_tensors_credentials_and_rejected_values_are_never_serialized(
    secret: str, where: str
) -> None:
    exc: Exception
    if where == "value":
        exc = upstream.VLLMValidationError("size is not one that this model has", parameter="size", value=secret)
    elif where == "cause":
        exc = OmniServerError("The stage has no such sampler.")
        exc.__cause__ = RuntimeError(secret)
    elif where == "text":
        exc = OmniClientError(f"The prompt cannot be read: {secret}")
    else:
        exc = RuntimeError(secret)
    stage.logger.disabled = True
    sent: list[bytes] = []
    try:
        with guard(lambda details: sent.append(wire.encode(details)), request_id="chatcmpl-1", stage_id=0):
            raise exc
    finally:
        stage.logger.disabled = False
    fields_sent = msgspec.msgpack.decode(sent[0])
    text = json.dumps(fields_sent)
    assert set(fields_sent) == {field.name for field in fields(OmniErrorDetails)}
    assert not any(part in text for part in secret.split() if len(part) > 9)
    assert "Traceback" not in text
    assert __file__ not in text


@given(records())
def test_invariant_consumers_use_category_not_the_numeric_status_to_reconstruct_ownership(
    record: OmniErrorDetails,
) -> None:
    owner = {"client": upstream.VLLMClientError, "server": upstream.VLLMServerError}[record.category]
    assert isinstance(convert.to_exception(record), owner)
    # The number alone decides nothing: a map that contradicts itself is no client's error.
    for status in (400, 500):
        contradiction = {**asdict(UNKNOWN), "category": "client" if status == 500 else "server", "status_code": status}
        assert isinstance(
            convert.to_exception(wire.decode(msgspec.msgpack.encode(contradiction))), upstream.VLLMServerError
        )


# --- normalize -------------------------------------------------------------------------------------------------------


def test_an_untyped_exception_goes_to_the_log_whole(log: pytest.LogCaptureFixture) -> None:
    raw = RawError(PRIVATE)
    try:
        raises(raw)()
    except RawError as exc:
        normalize(exc, request_id="chatcmpl-1", stage_id=3)
    [entry] = log.records
    assert entry.levelno == logging.ERROR
    assert entry.exc_info == (RawError, raw, raw.__traceback__)  # what handlers that are no formatter read
    assert entry.getMessage() == "request 'chatcmpl-1', stage 3: RawError"
    for part in ("Traceback", "raises(raw)()", f"RawError: {PRIVATE}"):
        assert part in log.text


def test_a_clients_error_is_one_line_without_traceback_or_rejected_value(log: pytest.LogCaptureFixture) -> None:
    normalize(upstream.VLLMValidationError("no\nsuch size", parameter="size", value=PRIVATE), request_id="r\n2")
    [entry] = log.records
    assert (entry.levelno, entry.exc_info) == (logging.INFO, None)
    assert entry.getMessage() == "request 'r2', stage None: VLLMValidationError: no such size"


def test_an_exception_that_carries_its_record_is_not_logged_again(log: pytest.LogCaptureFixture) -> None:
    assert normalize(convert.to_exception(RECORD), request_id="other", stage_id=9) is RECORD
    assert log.records == []


class HostileError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def test_an_exception_that_has_no_text_is_logged_nevertheless(log: pytest.LogCaptureFixture) -> None:
    assert normalize(HostileError()) == UNKNOWN
    assert "<exception str() failed>" in log.text


# --- guard -----------------------------------------------------------------------------------------------------------


@every_way
def test_a_guard_leaves_a_result_alone(run: Run, log: pytest.LogCaptureFixture) -> None:
    assert run(lambda: "result", guard(stage_id=1)) == "result"
    assert log.records == []


@every_way
def test_whatever_leaves_a_block_carries_its_record(run: Run, log: pytest.LogCaptureFixture) -> None:
    raw = RawError(PRIVATE)
    with pytest.raises(OmniEngineGenerateError) as caught:
        run(raises(raw), guard(request_id="chatcmpl-1", stage_id=1))
    assert caught.value.details == replace(UNKNOWN, request_id="chatcmpl-1", stage_id=1)
    assert caught.value.__cause__ is raw
    assert len(log.records) == 1


@every_way
def test_a_report_is_given_the_record_and_the_exception_goes_no_further(run: Run) -> None:
    reports: list[OmniErrorDetails] = []
    assert run(raises(RawError()), guard(reports.append, request_id="chatcmpl-1", stage_id=1)) is None
    assert reports == [replace(UNKNOWN, request_id="chatcmpl-1", stage_id=1)]


@pytest.mark.parametrize("run", [in_an_asynchronous_block, in_a_coroutine_function, in_an_asynchronous_generator])
def test_an_asynchronous_report_is_awaited(run: Run) -> None:
    reports: list[OmniErrorDetails] = []

    async def report(details: OmniErrorDetails) -> None:
        await asyncio.sleep(0)
        reports.append(details)

    run(raises(RawError()), guard(report))
    assert reports == [UNKNOWN]


def test_an_asynchronous_report_is_refused_where_nothing_can_await_it() -> None:
    async def report(details: OmniErrorDetails) -> None: ...

    with pytest.raises(TypeError, match=r"\Athe report of this guard is asynchronous: use `async with`\Z"):
        in_a_block(raises(RawError()), guard(report))


@every_way
@pytest.mark.parametrize("reports", [True, False])
@pytest.mark.parametrize(
    "passing",
    [asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit],
)
def test_cancellation_passes_unchanged(
    run: Run, reports: bool, passing: type[BaseException], log: pytest.LogCaptureFixture
) -> None:
    reported: list[OmniErrorDetails] = []
    exc = passing()
    with pytest.raises(passing) as caught:
        run(raises(exc), guard(reported.append if reports else None))
    if run not in (in_an_asynchronous_block, in_a_coroutine_function, in_an_asynchronous_generator):
        assert caught.value is exc
    assert reported == []
    assert log.records == []


async def test_cancelling_a_guarded_task_cancels_it() -> None:
    reported: list[OmniErrorDetails] = []

    @guard(reported.append)
    async def serve() -> None:
        await asyncio.sleep(60)

    task = asyncio.create_task(serve())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert reported == []


def test_closing_a_guarded_generator_is_no_error() -> None:
    reported: list[OmniErrorDetails] = []
    closed: list[str] = []

    @guard(reported.append)
    def serve() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            closed.append("inner")

    items = serve()
    next(items)
    items.close()  # type: ignore[attr-defined]
    assert (reported, closed) == ([], ["inner"])


async def test_closing_a_guarded_asynchronous_generator_closes_the_inner_one() -> None:
    closed: list[str] = []

    @guard()
    async def serve() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            closed.append("inner")

    items = serve()
    await anext(items)
    await items.aclose()  # type: ignore[attr-defined]
    assert closed == ["inner"]


def test_a_guarded_generator_is_still_sent_values_and_returns_one() -> None:
    @guard()
    def serve() -> Any:
        return (yield (yield 1))

    items = serve()
    assert (next(items), items.send(2)) == (1, 2)
    with pytest.raises(StopIteration) as done:
        items.send(3)
    assert done.value.value == 3


@every_way
def test_nested_guards_make_one_record_and_one_log_entry(run: Run, log: pytest.LogCaptureFixture) -> None:
    with pytest.raises(OmniEngineGenerateError) as inner:
        run(raises(RawError()), guard(stage_id=1))
    with pytest.raises(OmniEngineGenerateError) as outer:
        run(raises(inner.value), guard(stage_id=2))
    assert outer.value is inner.value
    assert len(log.records) == 1


def test_an_outer_guard_fills_in_what_the_record_does_not_know(log: pytest.LogCaptureFixture) -> None:
    with (
        pytest.raises(OmniNotImplementedError) as caught,
        guard(request_id="chatcmpl-1", stage_id=7),
        guard(stage_id=0),
    ):
        raise OmniNotImplementedError("no such operation")
    assert caught.value.details == OmniErrorDetails(
        "no such operation", "server", 501, "NotImplementedError", request_id="chatcmpl-1", stage_id=0
    )
    assert len(log.records) == 1


def test_a_report_that_fails_is_heard() -> None:
    def report(details: OmniErrorDetails) -> None:
        raise ConnectionError("the peer is gone")

    with pytest.raises(ConnectionError), guard(report):
        raise RawError


def test_a_guard_is_shared_by_many_requests_at_once() -> None:
    reported: list[OmniErrorDetails] = []
    shared = guard(reported.append)

    @shared
    async def serve(number: int) -> None:
        await asyncio.sleep(0)
        raise OmniClientError(f"no {number}")

    async def run() -> None:
        await asyncio.gather(*(serve(number) for number in range(20)))

    asyncio.run(run())
    assert sorted(details.message for details in reported) == sorted(f"no {number}" for number in range(20))


# --- relay -----------------------------------------------------------------------------------------------------------


@given(records(), st.text(max_size=8), st.integers(0, 9))
def test_a_record_is_relayed_as_it_came(record: OmniErrorDetails, request_id: str, stage_id: int) -> None:
    relayed = relay(record, request_id=request_id, stage_id=stage_id)
    assert relayed is not None
    known_request = request_id if record.request_id is None else record.request_id
    known_stage = stage_id if record.stage_id is None else record.stage_id
    assert relayed == replace(record, request_id=known_request, stage_id=known_stage)


def test_a_whole_record_is_relayed_as_the_same_object() -> None:
    assert relay(RECORD, request_id="other", stage_id=9) is RECORD
    unknown = replace(RECORD, request_id=None, stage_id=None)
    assert relay(unknown) is unknown


@pytest.mark.parametrize("form", [lambda fields: fields, lambda fields: SimpleNamespace(**fields)])
def test_a_message_is_relayed_by_its_record(form: Callable[[dict[str, Any]], object]) -> None:
    assert relay(form(wire.to_fields(RECORD))) == RECORD
    assert relay(form({"error": None}), request_id="chatcmpl-1") is None


def test_case_i02_a_record_that_cannot_be_read_fails_its_own_request_and_stage() -> None:
    relayed = relay({"error_details": b"\xc1"}, request_id="chatcmpl-1", stage_id=0)
    assert relayed == replace(UNKNOWN, request_id="chatcmpl-1", stage_id=0)


@pytest.mark.parametrize(
    "exc",
    [
        OmniNotImplementedError("no such operation", stage_id=1),
        OmniServiceUnavailableError("no replica", stage_id=1),
        OmniStageTimeoutError("too late", stage_id=1),
    ],
)
def test_case_i13_501_503_and_504_survive_two_hops(exc: Exception) -> None:
    sent: list[dict[str, Any]] = []
    with guard(lambda details: sent.append(wire.to_fields(details)), request_id="chatcmpl-1", stage_id=1):
        raise exc
    first = relay(msgspec.msgpack.decode(msgspec.msgpack.encode(sent[0])), stage_id=0)
    assert first is not None
    second = relay(msgspec.msgpack.decode(msgspec.msgpack.encode(wire.to_fields(first))), stage_id=5)
    assert second == convert.to_details(exc, request_id="chatcmpl-1")
    assert type(convert.to_exception(second)) is type(exc)
    assert second.stage_id == 1


class OddArgumentsError(Exception):
    def __init__(self, a: int, b: int, *, c: int) -> None:
        super().__init__()


def test_case_i04_an_exception_that_cannot_be_made_again_leaves_its_class_in_the_log_only(
    log: pytest.LogCaptureFixture,
) -> None:
    sent: list[bytes] = []
    with guard(lambda details: sent.append(wire.encode(details))):
        raise OddArgumentsError(1, 2, c=3)
    assert wire.decode(sent[0]) == UNKNOWN
    assert "OddArgumentsError" in log.text


# --- deadline --------------------------------------------------------------------------------------------------------


@every_way
@pytest.mark.parametrize("seconds", [60, None])
def test_a_deadline_leaves_a_result_alone(run: Run, seconds: float | None) -> None:
    assert run(lambda: "result", deadline(seconds, stage_id=1)) == "result"


@every_way
def test_another_error_passes_a_deadline_unchanged(run: Run) -> None:
    raw = RawError()
    with pytest.raises(RawError) as caught:
        run(raises(raw), deadline(60))
    assert caught.value is raw


@every_way
@pytest.mark.parametrize("seconds", [60, None])
def test_an_engines_own_timeout_before_the_deadline_is_not_ours(run: Run, seconds: float | None) -> None:
    own = TimeoutError("the engine's")
    with pytest.raises(TimeoutError) as caught:
        run(raises(own), deadline(seconds, stage_id=1))
    assert caught.value is own


def times_out() -> None:
    time.sleep(0.02)
    raise TimeoutError


@pytest.mark.parametrize("run", [in_a_block, in_a_function, in_a_generator])
def test_a_bounded_wait_that_ends_after_the_deadline_is_ours(run: Run) -> None:
    with pytest.raises(OmniStageTimeoutError) as caught:
        run(times_out, deadline(0.01, stage_id=1))
    assert (caught.value.message, caught.value.stage_id) == ("Stage 1 did not finish within 0.01 s.", 1)
    assert isinstance(caught.value.__cause__, TimeoutError)


def test_synchronous_code_is_told_the_time_that_is_left() -> None:
    with deadline(60) as limit:
        assert 59 < (limit.remaining() or 0) <= 60
        limit.check()
    with deadline(None) as limit:
        assert limit.remaining() is None
        limit.check()
    with deadline(0) as limit, pytest.raises(OmniStageTimeoutError, match=r"^The stage did not finish within 0 s\."):
        limit.check()
    assert limit.remaining() == 0


def test_a_result_that_is_there_is_never_thrown_away() -> None:
    assert in_a_function(lambda: time.sleep(0.02) or "result", deadline(0.01)) == "result"  # type: ignore[func-returns-value]


def test_a_generator_is_checked_at_each_item_and_closed() -> None:
    closed: list[str] = []

    @deadline(0.05, stage_id=1)
    def serve() -> Iterator[int]:
        try:
            for item in range(1_000):
                yield item
                time.sleep(0.01)
        finally:
            closed.append("inner")

    with pytest.raises(OmniStageTimeoutError):
        list(serve())
    assert closed == ["inner"]


async def waits_for_ever() -> None:
    await asyncio.Event().wait()


async def test_an_asynchronous_block_is_cancelled_at_its_deadline() -> None:
    cancelled: list[str] = []

    async def serve() -> None:
        async with deadline(0.01, stage_id=4):
            try:
                await waits_for_ever()
            except asyncio.CancelledError:
                cancelled.append("inner")
                raise

    with pytest.raises(OmniStageTimeoutError) as caught:
        await serve()
    assert cancelled == ["inner"]
    assert (caught.value.message, caught.value.stage_id) == ("Stage 4 did not finish within 0.01 s.", 4)
    details = convert.to_details(caught.value)
    assert (details.status_code, details.error_type, details.stage_id) == (504, "GatewayTimeoutError", 4)


async def test_a_coroutine_function_has_a_new_clock_for_each_call() -> None:
    @deadline(0.2, stage_id=4)
    async def serve(wait: Callable[[], Awaitable[None]]) -> str:
        await wait()
        return "result"

    for _ in range(3):
        assert await serve(lambda: asyncio.sleep(0.1)) == "result"
    with pytest.raises(OmniStageTimeoutError):
        await serve(waits_for_ever)


async def test_an_asynchronous_generator_is_cancelled_where_it_waits() -> None:
    closed: list[str] = []

    @deadline(0.1, stage_id=4)
    async def serve() -> AsyncIterator[int]:
        try:
            yield 1
            await waits_for_ever()
            yield 2
        finally:
            closed.append("inner")

    items = serve()
    assert await anext(items) == 1
    with pytest.raises(OmniStageTimeoutError):
        await anext(items)
    assert closed == ["inner"]
    assert await anext(items, None) is None


async def test_an_asynchronous_generator_ends_where_the_inner_one_does_and_not_at_an_empty_item() -> None:
    @deadline(60)
    async def serve() -> AsyncIterator[int | None]:
        yield None
        yield 1

    items = serve()
    assert [await anext(items, "end") for _ in range(4)] == [None, 1, "end", "end"]


async def test_the_consumer_of_an_asynchronous_generator_is_not_cancelled() -> None:
    @deadline(0.01)
    async def serve() -> AsyncIterator[int]:
        yield 1
        yield 2

    items = serve()
    assert await anext(items) == 1
    await asyncio.sleep(0.05)  # longer than the deadline, and nobody is cancelled


async def test_cancellation_passes_a_deadline() -> None:
    async def serve() -> None:
        async with deadline(60):
            await waits_for_ever()

    task = asyncio.create_task(serve())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_guard_around_a_deadline_reports_504_with_the_stage() -> None:
    reported: list[OmniErrorDetails] = []

    @guard(reported.append, request_id="chatcmpl-1")
    @deadline(0.01, stage_id=2)
    async def serve() -> None:
        await waits_for_ever()

    await serve()
    assert [(each.status_code, each.request_id, each.stage_id) for each in reported] == [(504, "chatcmpl-1", 2)]
