# SPDX-License-Identifier: Apache-2.0
"""Phase `transports`: WebSockets. A client's mistake leaves the session open, any other error ends it (contract, 5)."""

from collections.abc import Mapping
from typing import ClassVar

import libcst as cst

from vllm_omni_errors.migrate.rewrite import Phase, Rewrite, code, statements
from vllm_omni_errors.migrate.rewrites.shapes import (
    AddMethods,
    CatchInstead,
    InsertStatements,
    InTry,
    RaiseOnTimeout,
    RefuseSession,
    ReplaceBody,
    ReplaceCall,
    ReplaceClause,
    ReplaceClauses,
    ReplaceKeyword,
    SendExceptions,
    StopTranslating,
    TellInstead,
    TryAround,
    caught_types,
)

API_SERVER = "entrypoints/openai/api_server.py"
SPEECH = "entrypoints/openai/serving_speech_stream.py"
SPEECH_SESSION = "OmniStreamingSpeechHandler.handle_session"
SPEECH_CONFIG = "OmniStreamingSpeechHandler._build_config"
SPEECH_UNIT = "OmniStreamingSpeechHandler._generate_and_send"
VIDEO = "entrypoints/openai/serving_video_output_stream.py"
VIDEO_SESSION = "OmniStreamingVideoOutputHandler.handle_session"
VIDEO_START = "OmniStreamingVideoOutputHandler._receive_start"
VIDEO_CONTROL = "OmniStreamingVideoOutputHandler._control_loop"
VIDEO_INTERACTION = "OmniStreamingVideoOutputHandler._handle_interaction"
VIDEO_CHAT = "entrypoints/openai/video_stream_base.py"
VIDEO_CHAT_HANDLER = "OmniStreamingVideoHandler"
VIDEO_CHAT_SESSION = f"{VIDEO_CHAT_HANDLER}.handle_session"
VIDEO_CHAT_READER = f"{VIDEO_CHAT_SESSION}._reader"
VIDEO_CHAT_CONFIG = f"{VIDEO_CHAT_HANDLER}._receive_config"
VIDEO_CHAT_TURN = f"{VIDEO_CHAT_HANDLER}._process_query_engine"
ROBOT = "entrypoints/openpi/connection.py"
ROBOT_SESSION = "RobotRealtimeConnection.handle_connection"
DUPLEX = "entrypoints/duplex/serving.py"
DUPLEX_HANDLER = "OmniDuplexSessionHandler"
DUPLEX_EVENTS = "protocol/duplex/events.py"
REALTIME = "entrypoints/openai/realtime_connection.py"

_LIBRARY = "vllm_omni_errors.transports.websocket"
_TIMEOUT = (("asyncio.TimeoutError",),)
_NOT_JSON = (("json.JSONDecodeError",),)
_SESSION = (("WebSocketDisconnect",), ("Exception",))


class _Transports(Rewrite):
    phase: ClassVar[Phase] = "transports"


# ---- kinds of change that several sockets share ---------------------------------------------------------------------


class _Refuse(_Transports, RefuseSession):
    """A handler that this server will never have is 503 before the session is accepted, not a session that fails."""

    module = API_SERVER
    before = """
        async def stream(websocket):
            if handler is None:
                await websocket.accept()
                await websocket.send_json({"type": "error", "message": "No handler"})
                await websocket.close()
                return
            await handler(websocket)
    """
    after = """
        from vllm_omni.errors import OmniServiceUnavailableError


        async def stream(websocket):
            if handler is None:
                raise OmniServiceUnavailableError("No handler", permanent=True)
            await handler(websocket)
    """


class _OnlyText(_Transports, ReplaceCall):
    """A binary frame where text is expected ended the session without a word; it is answered now."""

    callee = "websocket.receive_text"
    new = "receive_text(websocket)"
    imports = ((_LIBRARY, "receive_text"),)
    before = """
        async def listen(websocket):
            return await websocket.receive_text()
    """
    after = """
        from vllm_omni_errors.transports.websocket import receive_text


        async def listen(websocket):
            return await receive_text(websocket)
    """


class _AnyText(_Transports, CatchInstead):
    """JSON that is nested too deeply, or holds a number with too many digits, is no JSON either."""

    clauses = _NOT_JSON
    clause = _NOT_JSON[0]
    types = "(ValueError, RecursionError)"
    before = """
        def parse(raw):
            try:
                return json.loads(raw)
            except json.JSONDecodeError:
                return None
    """
    after = """
        def parse(raw):
            try:
                return json.loads(raw)
            except (ValueError, RecursionError):
                return None
    """


class _Deadline(_Transports, RaiseOnTimeout):
    """A deadline of the session that expires ends it, with the event and the close code."""

    clauses = _TIMEOUT
    callee = "self._send_error"
    before = """
        async def listen(self, websocket):
            try:
                return await receive(websocket)
            except asyncio.TimeoutError:
                await self._send_error(websocket, Late("too late"))
                return None
    """
    after = """
        async def listen(self, websocket):
            try:
                return await receive(websocket)
            except asyncio.TimeoutError:
                raise Late("too late") from None
    """


class _NameFields(_Transports, TellInstead):
    """A configuration that pydantic refuses is described by its fields, never by their values."""

    callee = "self._send_error"
    caught = ("ValidationError",)
    new = "invalid_fields(e)"
    imports = (("vllm_omni_errors.seams", "invalid_fields"),)
    before = """
        async def configure(self, websocket):
            try:
                return Config()
            except ValidationError as e:
                await self._send_error(websocket, f"Invalid: {e}")
                return None
    """
    after = """
        from vllm_omni_errors.seams import invalid_fields


        async def configure(self, websocket):
            try:
                return Config()
            except ValidationError as e:
                await self._send_error(websocket, invalid_fields(e))
                return None
    """


class _EndsAtBoundary(_Transports, StopTranslating):
    """What ends a session travels to the boundary, which sends the event and closes with the right code."""

    clauses = _SESSION
    keep = (("WebSocketDisconnect",),)
    before = """
        async def serve(websocket):
            try:
                await listen(websocket)
            except WebSocketDisconnect:
                log("gone")
            except Exception as e:
                await tell(websocket, str(e))
    """
    after = """
        async def serve(websocket):
            try:
                await listen(websocket)
            except WebSocketDisconnect:
                log("gone")
    """


# ---- before a session -----------------------------------------------------------------------------------------------


class SpeechRefused(_Refuse):
    __doc__ = _Refuse.__doc__
    function = "streaming_speech"


class VideoChatRefused(_Refuse):
    __doc__ = _Refuse.__doc__
    function = "streaming_video_chat"


class VideoRefused(_Refuse):
    __doc__ = _Refuse.__doc__
    function = "streaming_video_output"


class RealtimeRefused(_Refuse):
    __doc__ = _Refuse.__doc__
    function = "realtime_websocket"
    hits = 2


class DuplexRefused(_Refuse):
    __doc__ = _Refuse.__doc__
    function = "duplex_websocket"


class RobotRefused(_Refuse):
    __doc__ = _Refuse.__doc__
    function = "realtime_robot_openpi"


class SharedDuplexRefused(_Refuse):
    """Duplex sessions live in one API process: with several of them it is 503, before the session is accepted."""

    function = "_reject_multi_api_duplex"


# ---- /v1/audio/speech/stream ----------------------------------------------------------------------------------------


class SpeechOnlyText(_OnlyText):
    __doc__ = _OnlyText.__doc__
    module = SPEECH
    function = SPEECH_SESSION


class SpeechAnyText(_AnyText):
    __doc__ = _AnyText.__doc__
    module = SPEECH
    function = "OmniStreamingSpeechHandler._parse_message"


class SpeechDeadline(_Deadline):
    __doc__ = _Deadline.__doc__
    module = SPEECH
    function = SPEECH_SESSION


class SpeechSendsExceptions(_Transports, SendExceptions):
    """One way to send an error; what is not the client's ends the session."""

    module = SPEECH
    function = "OmniStreamingSpeechHandler._send_error"
    shape = "914585fd0175"
    imports = ((_LIBRARY, "send_error"),)
    body = """
        beside = {"partial_audio": True, "action": "discard"} if partial_audio else {}
        await send_error(websocket, error, **beside)
    """
    before = """
        async def tell(websocket, message: str, *, partial_audio: bool = False) -> None:
            await websocket.send_json({"message": message})
    """
    after = """
        from vllm_omni_errors.transports.websocket import send_error


        async def tell(websocket, error: Exception, *, partial_audio: bool = False) -> None:
            beside = {"partial_audio": True, "action": "discard"} if partial_audio else {}
            await send_error(websocket, error, **beside)
    """


class SpeechConfigFields(_NameFields):
    __doc__ = _NameFields.__doc__
    module = SPEECH
    function = SPEECH_CONFIG


class SpeechConfigModel(_Transports, TellInstead):
    """An unknown model is the same 404 here as on the HTTP route, whose check is called."""

    module = SPEECH
    function = SPEECH_CONFIG
    callee = "self._send_error"
    caught = None
    new = "response_error(error)"
    imports = (("vllm_omni_errors.seams", "response_error"),)
    before = """
        async def configure(self, websocket):
            error = check()
            if error is not None:
                await self._send_error(websocket, str(error))
    """
    after = """
        from vllm_omni_errors.seams import response_error


        async def configure(self, websocket):
            error = check()
            if error is not None:
                await self._send_error(websocket, response_error(error))
    """


class SpeechHandshakeGoesOn(_Transports):
    """A first message that is wrong can be corrected: the session waits for the next one."""

    module = SPEECH
    function = SPEECH_SESSION
    hits = 3
    before = """
        async def serve(self, websocket):
            while True:
                if config is None:
                    await self._send_error(websocket, error)
                    return
                work()
    """
    after = """
        async def serve(self, websocket):
            while True:
                if config is None:
                    await self._send_error(websocket, error)
                    continue
                work()
    """

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If | cst.RemovalSentinel:
        if not self.inside() or code(original_node.test) != "config is None":
            return updated_node
        *before, last = updated_node.body.body
        if code(last).strip().partition(" ")[0] != "return":
            return updated_node
        self.found += 1
        if not before:
            return cst.RemoveFromParent()
        return updated_node.with_changes(body=updated_node.body.with_changes(body=[*before, *statements("continue")]))


class SpeechSessionEnds(_EndsAtBoundary):
    __doc__ = _EndsAtBoundary.__doc__
    module = SPEECH
    function = SPEECH_SESSION


class SpeechUnitFields(_Transports, TryAround):
    """What the configuration allows and the request of one utterance does not was the server's failure."""

    module = SPEECH
    function = SPEECH_UNIT
    assignment = "request"
    imports = (("vllm_omni_errors.seams", "invalid_fields"),)
    new = """
        except ValidationError as e:
            await self._send_error(websocket, invalid_fields(e))
            return
    """
    before = """
        async def speak(self, websocket, text):
            request = Request(text)
            await run(request)
    """
    after = """
        from vllm_omni_errors.seams import invalid_fields


        async def speak(self, websocket, text):
            try:
                request = Request(text)
            except ValidationError as e:
                await self._send_error(websocket, invalid_fields(e))
                return
            await run(request)
    """


class SpeechUnitFails(_Transports, ReplaceClause):
    """The failure of one utterance is told by what it is: the client's leaves the session open, with the marks that
    say that the utterance is over; any other ends the session, and nothing that looks like success follows."""

    module = SPEECH
    function = SPEECH_UNIT
    clauses = _SESSION
    clause = ("Exception",)
    new = """
        except Exception as e:
            await self._send_error(websocket, e, partial_audio=total_bytes > 0)
            generation_failed = True
    """
    before = """
        async def speak(self, websocket):
            try:
                await run()
            except WebSocketDisconnect:
                raise
            except Exception as e:
                log(e)
            finally:
                await done()
    """
    after = """
        async def speak(self, websocket):
            try:
                await run()
            except WebSocketDisconnect:
                raise
            except Exception as e:
                await self._send_error(websocket, e, partial_audio=total_bytes > 0)
                generation_failed = True
            await done()
    """

    def on_try(self, original: cst.Try, updated: cst.Try) -> "cst.Try | cst.FlattenSentinel[cst.BaseStatement]":
        last = cst.ensure_type(updated.finalbody, cst.Finally)
        changed = super().on_try(original, updated.with_changes(finalbody=None))
        return cst.FlattenSentinel([cst.ensure_type(changed, cst.Try), *last.body.body])


# ---- /v1/realtime/video ---------------------------------------------------------------------------------------------


class _FirstMessageGoesOn(_Transports):
    """A first message that is wrong can be corrected: the session waits for the next one."""

    assigned: ClassVar[str]
    before = """
        async def serve(self, websocket):
            start = await self._receive_start(websocket)
            if start is None:
                return
            await run(start)
    """
    after = """
        async def serve(self, websocket):
            start = await self._receive_start(websocket)
            while start is None:
                start = await self._receive_start(websocket)
            await run(start)
    """

    def __init__(self) -> None:
        super().__init__()
        self._asks = ""

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        if self.inside() and code(original_node.targets[0].target) == self.assigned:
            self._asks = code(original_node)
        return updated_node

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If | cst.While:
        if not self.inside() or code(original_node.test) != f"{self.assigned} is None":
            return updated_node
        self.found += 1
        return cst.While(test=updated_node.test, body=cst.IndentedBlock(statements(self._asks)))


class VideoStartGoesOn(_FirstMessageGoesOn):
    __doc__ = _FirstMessageGoesOn.__doc__
    module = VIDEO
    function = VIDEO_SESSION
    assigned = "start"


class VideoStartOnlyText(_OnlyText):
    __doc__ = _OnlyText.__doc__
    module = VIDEO
    function = VIDEO_START


class VideoStartAnyText(_AnyText):
    __doc__ = _AnyText.__doc__
    module = VIDEO
    function = VIDEO_START


class VideoStartDeadline(_Deadline):
    __doc__ = _Deadline.__doc__
    module = VIDEO
    function = VIDEO_START


class VideoStartFields(_NameFields):
    __doc__ = _NameFields.__doc__
    module = VIDEO
    function = VIDEO_START


class VideoFormat(_Transports, ReplaceClause):
    """The format's check raises a typed error, which is told as it is."""

    module = VIDEO
    function = VIDEO_START
    clauses = (("ValueError",),)
    clause = clauses[0]
    imports = (("vllm.exceptions", "VLLMValidationError"),)
    new = """
        except VLLMValidationError as e:
            await self._send_error(websocket, e)
            return None
    """
    before = """
        async def start(self, websocket):
            try:
                return check()
            except ValueError as e:
                await self._send_error(websocket, str(e))
                return None
    """
    after = """
        from vllm.exceptions import VLLMValidationError


        async def start(self, websocket):
            try:
                return check()
            except VLLMValidationError as e:
                await self._send_error(websocket, e)
                return None
    """


class VideoControlOnlyText(_OnlyText):
    __doc__ = _OnlyText.__doc__
    module = VIDEO
    function = VIDEO_CONTROL
    new = "receive_text(websocket, lock=send_lock)"
    after = _OnlyText.after.replace("receive_text(websocket)", new)


class VideoControlAnyText(_AnyText):
    __doc__ = _AnyText.__doc__
    module = VIDEO
    function = VIDEO_CONTROL


class VideoStall(_Transports):
    """A generation that stalls ends the session: the error is raised, and whoever runs the control loop aborts."""

    module = VIDEO
    function = VIDEO_CONTROL
    before = """
        async def control(self, websocket):
            if progress.stalled_for(limit):
                await self._send_error(websocket, Stalled("no progress"), send_lock=lock)
                await self._abort_request(request_id)
                return
            await listen()
    """
    after = """
        async def control(self, websocket):
            if progress.stalled_for(limit):
                raise Stalled("no progress")
            await listen()
    """

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If:
        if not self.inside() or not code(original_node.test).startswith("progress.stalled_for("):
            return updated_node
        self.found += 1
        first = cst.ensure_type(updated_node.body.body[0], cst.SimpleStatementLine).body[0]
        call = cst.ensure_type(cst.ensure_type(cst.ensure_type(first, cst.Expr).value, cst.Await).expression, cst.Call)
        raised = statements(f"raise {code(call.args[1].value)}")
        return updated_node.with_changes(body=updated_node.body.with_changes(body=raised))


class VideoRequestId(_Transports, InsertStatements):
    """Errors of a session name the request that `video.start` announced."""

    module = VIDEO
    function = VIDEO_SESSION
    before_assignment = "progress"
    imports = (("vllm.entrypoints.generate.base.protocol", "RequestResponseMetadata"),)
    new = "websocket.state.request_metadata = RequestResponseMetadata(request_id=request_id)"
    before = """
        async def serve(self, websocket):
            request_id = new_id()
            progress = Progress()
    """
    after = """
        from vllm.entrypoints.generate.base.protocol import RequestResponseMetadata


        async def serve(self, websocket):
            request_id = new_id()
            websocket.state.request_metadata = RequestResponseMetadata(request_id=request_id)
            progress = Progress()
    """


class VideoControlIsWatched(_Transports, ReplaceCall):
    """The control loop is a task that nobody awaits: what it raised was lost."""

    module = VIDEO
    function = VIDEO_SESSION
    callee = "self._control_loop"
    new = "self._control(websocket, request_id, stop_event, send_lock, progress, interaction_payloads_by_id)"
    before = """
        def serve(self, websocket):
            return create_task(self._control_loop(websocket))
    """
    after = """
        def serve(self, websocket):
            return create_task(
                self._control(websocket, request_id, stop_event, send_lock, progress, interaction_payloads_by_id)
            )
    """


class VideoControl(_Transports, AddMethods):
    """The one who awaits the control loop: what it raises ends the session and aborts the request."""

    module = VIDEO
    function = "OmniStreamingVideoOutputHandler"
    imports = ((_LIBRARY, "end_session"),)
    new = """
        async def _control(
            self,
            websocket: WebSocket,
            request_id: str,
            stop_event: asyncio.Event,
            send_lock: asyncio.Lock,
            progress: _SessionProgress,
            payloads: dict[str, OmniInteractionPrompt],
        ) -> None:
            try:
                await self._control_loop(websocket, request_id, stop_event, send_lock, progress, payloads)
            except Exception as e:
                await end_session(websocket, e, lock=send_lock)
                await self._abort_request(request_id)
                stop_event.set()
    """
    before = """
        class Handler:
            async def _control_loop(self):
                return 1
    """
    after = (
        before.replace("class", "from vllm_omni_errors.transports.websocket import end_session\n\n\n        class", 1)
        + """
            async def _control(
                self,
                websocket: WebSocket,
                request_id: str,
                stop_event: asyncio.Event,
                send_lock: asyncio.Lock,
                progress: _SessionProgress,
                payloads: dict[str, OmniInteractionPrompt],
            ) -> None:
                try:
                    await self._control_loop(websocket, request_id, stop_event, send_lock, progress, payloads)
                except Exception as e:
                    await end_session(websocket, e, lock=send_lock)
                    await self._abort_request(request_id)
                    stop_event.set()
    """
    )


class VideoInteractionFails(_Transports, ReplaceClause):
    """An interaction that a stage refuses is told by what it is; only the client's mistake leaves the session open."""

    module = VIDEO
    function = VIDEO_INTERACTION
    clauses = (("Exception",),)
    about = "self._engine_client.submit_interaction_async"
    clause = clauses[0]
    new = """
        except Exception as e:
            interaction_payloads_by_id.pop(event_id, None)
            await self._send_error(websocket, e, event_id=event_id, request_id=request_id, send_lock=send_lock)
            return
    """
    before = """
        async def interact(self, websocket):
            try:
                await self._engine_client.submit_interaction_async()
            except Exception:
                log()
    """
    after = """
        async def interact(self, websocket):
            try:
                await self._engine_client.submit_interaction_async()
            except Exception as e:
                interaction_payloads_by_id.pop(event_id, None)
                await self._send_error(websocket, e, event_id=event_id, request_id=request_id, send_lock=send_lock)
                return
    """


class VideoEchoesEventId(_Transports):
    """Errors about an event name the event: its `event_id` is echoed once it is known to be one."""

    module = VIDEO
    function = VIDEO_INTERACTION
    hits = 8
    before = """
        async def interact(self, websocket):
            if event_id is None:
                event_id = make()
            elif not event_id:
                await self._send_error(websocket, wrong)
                return
            await self._send_error(websocket, error)
    """
    after = """
        async def interact(self, websocket):
            if event_id is None:
                event_id = make()
            elif not event_id:
                await self._send_error(websocket, wrong)
                return
            await self._send_error(websocket, error, event_id=event_id)
    """

    def __init__(self) -> None:
        super().__init__()
        self._known = False

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If:
        self._known = self._known or code(original_node.test) == "event_id is None"
        return updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        if not self._known or not self.inside() or code(original_node.func) != "self._send_error":
            return updated_node
        if any(argument.keyword is not None and argument.keyword.value == "event_id" for argument in updated_node.args):
            return updated_node
        self.found += 1
        added = cst.ensure_type(cst.parse_expression("f(event_id=event_id)"), cst.Call).args
        return updated_node.with_changes(args=[*updated_node.args, *added])


class VideoSessionEnds(_Transports, InTry):
    """After a stop that the client asked for, an aborted generation is no error; any other error ends the session."""

    module = VIDEO
    function = VIDEO_SESSION
    clauses = _SESSION
    before = """
        async def serve(self, websocket):
            try:
                await run()
            except WebSocketDisconnect:
                log("gone")
            except Exception as e:
                if stop_event.is_set():
                    return
                await self._send_error(websocket, str(e))
    """
    after = """
        async def serve(self, websocket):
            try:
                await run()
            except WebSocketDisconnect:
                log("gone")
            except Exception:
                if stop_event.is_set():
                    return
                raise
    """

    def on_try(self, original: cst.Try, updated: cst.Try) -> cst.Try:
        *others, last = updated.handlers
        body = last.body.with_changes(body=[last.body.body[0], *statements("raise")])
        return updated.with_changes(handlers=[*others, last.with_changes(name=None, body=body)])


class VideoSendsExceptions(_Transports, SendExceptions):
    """One way to send an error; what is not the client's ends the session."""

    module = VIDEO
    function = "OmniStreamingVideoOutputHandler._send_error"
    shape = "8fcf19c35ea0"
    imports = ((_LIBRARY, "send_error"),)
    body = """
        beside = {"code": code, "request_id": request_id, "event_id": event_id}
        known = {name: value for name, value in beside.items() if value is not None}
        await send_error(websocket, error, lock=send_lock, answers=event_id, **known)
    """
    before = """
        async def tell(websocket, message: str, code=None, *, request_id=None, event_id=None) -> None:
            await websocket.send_json({"message": message})
    """
    after = """
        from vllm_omni_errors.transports.websocket import send_error


        async def tell(websocket, error: Exception, code=None, *, request_id=None, event_id=None) -> None:
            beside = {"code": code, "request_id": request_id, "event_id": event_id}
            known = {name: value for name, value in beside.items() if value is not None}
            await send_error(websocket, error, lock=send_lock, answers=event_id, **known)
    """


# ---- /v1/video/chat/stream ------------------------------------------------------------------------------------------


class VideoChatConfigGoesOn(_FirstMessageGoesOn):
    __doc__ = _FirstMessageGoesOn.__doc__
    module = VIDEO_CHAT
    function = VIDEO_CHAT_SESSION
    assigned = "config"
    before = _FirstMessageGoesOn.before.replace("start", "config")
    after = _FirstMessageGoesOn.after.replace("start", "config")


class VideoChatConfigOnlyText(_OnlyText):
    __doc__ = _OnlyText.__doc__
    module = VIDEO_CHAT
    function = VIDEO_CHAT_CONFIG


class VideoChatConfigAnyText(_AnyText):
    __doc__ = _AnyText.__doc__
    module = VIDEO_CHAT
    function = VIDEO_CHAT_CONFIG


class VideoChatConfigDeadline(_Deadline):
    __doc__ = _Deadline.__doc__
    module = VIDEO_CHAT
    function = VIDEO_CHAT_CONFIG


class VideoChatConfigFields(_NameFields):
    __doc__ = _NameFields.__doc__
    module = VIDEO_CHAT
    function = VIDEO_CHAT_CONFIG


class VideoChatOnlyText(_OnlyText):
    __doc__ = _OnlyText.__doc__
    module = VIDEO_CHAT
    function = VIDEO_CHAT_READER


class VideoChatAnyText(_AnyText):
    __doc__ = _AnyText.__doc__
    module = VIDEO_CHAT
    function = VIDEO_CHAT_READER


class VideoChatTextFields(_Transports, InsertStatements):
    """A field of a wrong type is the client's mistake; far from here it was a failure that ended the session."""

    module = VIDEO_CHAT
    function = VIDEO_CHAT_READER
    before_assignment = "msg_type"
    imports = (("vllm.exceptions", "VLLMValidationError"),)
    new = """
        wrong = [name for name in ("data", "text", "audio_data") if not isinstance(msg.get(name), str | None)]
        if wrong:
            error = VLLMValidationError(f"{wrong[0]} must be a string.", parameter=wrong[0])
            await self._send_error(websocket, error)
            continue
    """
    before = """
        async def read(self, websocket):
            while True:
                msg = await receive()
                msg_type = msg["type"]
    """
    after = """
        from vllm.exceptions import VLLMValidationError


        async def read(self, websocket):
            while True:
                msg = await receive()
                wrong = [name for name in ("data", "text", "audio_data") if not isinstance(msg.get(name), str | None)]
                if wrong:
                    error = VLLMValidationError(f"{wrong[0]} must be a string.", parameter=wrong[0])
                    await self._send_error(websocket, error)
                    continue
                msg_type = msg["type"]
    """


class VideoChatIdle(_Transports):
    """The reader is a task: its deadline ends the session, and the processing loop is told as before."""

    module = VIDEO_CHAT
    function = VIDEO_CHAT_READER
    imports = ((_LIBRARY, "end_session"),)
    before = """
        async def read(self, websocket):
            try:
                await receive()
            except asyncio.TimeoutError:
                await self._send_error(websocket, Late("too late"))
                return
    """
    after = """
        from vllm_omni_errors.transports.websocket import end_session


        async def read(self, websocket):
            try:
                await receive()
            except asyncio.TimeoutError:
                await end_session(websocket, Late("too late"))
                return
    """

    def leave_ExceptHandler(
        self, original_node: cst.ExceptHandler, updated_node: cst.ExceptHandler
    ) -> cst.ExceptHandler:
        if not self.inside() or caught_types(original_node) != _TIMEOUT[0]:
            return updated_node
        self.found += 1
        first, *others = updated_node.body.body
        ended = statements(code(first).strip().replace("self._send_error(", "end_session(", 1))
        return updated_node.with_changes(body=updated_node.body.with_changes(body=[*ended, *others]))


class VideoChatReaderFails(_Transports, ReplaceClause):
    """The reader is a task whose failure was dropped: it ends the session now."""

    module = VIDEO_CHAT
    function = VIDEO_CHAT_READER
    clauses = _SESSION
    clause = ("Exception",)
    imports = ((_LIBRARY, "end_session"),)
    new = """
        except Exception as e:
            await end_session(websocket, e)
            await msg_queue.put(None)
    """
    before = """
        async def read(self, websocket):
            try:
                await receive()
            except WebSocketDisconnect:
                await msg_queue.put(None)
            except Exception:
                await msg_queue.put(None)
                raise
    """
    after = """
        from vllm_omni_errors.transports.websocket import end_session


        async def read(self, websocket):
            try:
                await receive()
            except WebSocketDisconnect:
                await msg_queue.put(None)
            except Exception as e:
                await end_session(websocket, e)
                await msg_queue.put(None)
    """


class VideoChatTurnIsWatched(_Transports, ReplaceClauses):
    """A turn is a task whose failure was dropped: the client's mistake is answered, any other ends the session."""

    module = VIDEO_CHAT
    function = f"{VIDEO_CHAT_SESSION}._start_query_turn._run_query"
    clauses = ()
    imports = ((_LIBRARY, "report_error"),)
    new = """
        except Exception as e:
            await report_error(websocket, e)
    """
    before = """
        async def turn(self, websocket):
            try:
                await run()
            finally:
                forget()
    """
    after = """
        from vllm_omni_errors.transports.websocket import report_error


        async def turn(self, websocket):
            try:
                await run()
            except Exception as e:
                await report_error(websocket, e)
            finally:
                forget()
    """


class _UnreadableAudio(_Transports, ReplaceClause):
    """Audio that is no base64 was dropped without a word; the client is told."""

    module = VIDEO_CHAT
    function = f"{VIDEO_CHAT_SESSION}._processor"
    clauses = (("Exception",),)
    clause = clauses[0]
    imports = (("vllm.exceptions", "VLLMUnprocessableEntityError"),)
    before = """
        async def process(self, websocket):
            while True:
                try:
                    pcm_bytes = decode()
                except Exception:
                    continue
    """


class VideoChatAudio(_UnreadableAudio):
    __doc__ = _UnreadableAudio.__doc__
    about = "pcm_bytes"
    new = """
        except ValueError:
            error = VLLMUnprocessableEntityError("data is not base64.", parameter="data")
            await self._send_error(websocket, error)
            continue
    """
    after = """
        from vllm.exceptions import VLLMUnprocessableEntityError


        async def process(self, websocket):
            while True:
                try:
                    pcm_bytes = decode()
                except ValueError:
                    error = VLLMUnprocessableEntityError("data is not base64.", parameter="data")
                    await self._send_error(websocket, error)
                    continue
    """


class VideoChatQueryAudio(_UnreadableAudio):
    __doc__ = _UnreadableAudio.__doc__
    about = "decoded"
    new = """
        except ValueError:
            error = VLLMUnprocessableEntityError("audio_data is not base64.", parameter="audio_data")
            await self._send_error(websocket, error)
            continue
    """
    before = _UnreadableAudio.before.replace("pcm_bytes", "decoded")
    after = """
        from vllm.exceptions import VLLMUnprocessableEntityError


        async def process(self, websocket):
            while True:
                try:
                    decoded = decode()
                except ValueError:
                    error = VLLMUnprocessableEntityError("audio_data is not base64.", parameter="audio_data")
                    await self._send_error(websocket, error)
                    continue
    """


class VideoChatSessionEnds(_EndsAtBoundary):
    __doc__ = _EndsAtBoundary.__doc__
    module = VIDEO_CHAT
    function = VIDEO_CHAT_SESSION
    about = "self._receive_config"
    before = _EndsAtBoundary.before.replace("listen", "self._receive_config")
    after = _EndsAtBoundary.after.replace("listen", "self._receive_config")


class VideoChatRequest(_Transports, CatchInstead):
    """Only what the session's fields make of a chat request is the client's."""

    module = VIDEO_CHAT
    function = VIDEO_CHAT_TURN
    clauses = (("Exception",),)
    about = "ChatCompletionRequest"
    clause = clauses[0]
    types = "(TypeError, ValueError, VLLMClientError)"
    imports = (("vllm.exceptions", "VLLMClientError"),)
    before = """
        async def turn(self, websocket):
            try:
                request = ChatCompletionRequest()
            except Exception:
                return
    """
    after = """
        from vllm.exceptions import VLLMClientError


        async def turn(self, websocket):
            try:
                request = ChatCompletionRequest()
            except (TypeError, ValueError, VLLMClientError):
                return
    """


class VideoChatPreprocessing(_Transports, ReplaceClauses):
    """What reads the request is the client's, anything else of preprocessing the server's; the turn's task tells it."""

    module = VIDEO_CHAT
    function = VIDEO_CHAT_TURN
    clauses = (("Exception",),)
    about = "self._preprocess_to_engine_prompt"
    imports = (("jinja2", "TemplateError"), ("vllm_omni_errors.seams", "request_error"))
    new = "except (ValueError, TypeError, OverflowError, TemplateError) as e:\n    raise request_error(e) from e"
    before = """
        async def turn(self, websocket):
            try:
                prompt = await self._preprocess_to_engine_prompt()
            except Exception as e:
                return
    """
    after = """
        from jinja2 import TemplateError
        from vllm_omni_errors.seams import request_error


        async def turn(self, websocket):
            try:
                prompt = await self._preprocess_to_engine_prompt()
            except (ValueError, TypeError, OverflowError, TemplateError) as e:
                raise request_error(e) from e
    """


class VideoChatTurnFails(_Transports, StopTranslating):
    """A turn that fails, or audio of it that cannot be encoded, ends in its error, not in a finished response."""

    module = VIDEO_CHAT
    function = VIDEO_CHAT_TURN
    hits = 2
    clauses = (("Exception",),)
    about = "self._encode_tail"
    before = """
        async def turn(self, websocket):
            try:
                self._encode_tail()
            except Exception:
                log("failed")
            await done()
    """
    after = """
        async def turn(self, websocket):
            self._encode_tail()
            await done()
    """


class VideoChatAudioEncoding(_Transports, StopTranslating):
    """A piece of audio that cannot be encoded was left out of an answer that looked whole."""

    module = VIDEO_CHAT
    function = f"{VIDEO_CHAT_HANDLER}._encode_tail"
    clauses = (("Exception",),)
    before = VideoChatTurnFails.before
    after = VideoChatTurnFails.after


class VideoChatSendsExceptions(_Transports, SendExceptions):
    """One way to send an error; what is not the client's ends the session."""

    module = VIDEO_CHAT
    function = f"{VIDEO_CHAT_HANDLER}._send_error"
    shape = "671d5f5d2988"
    imports = ((_LIBRARY, "send_error"),)
    body = "await send_error(websocket, error)"
    before = """
        async def tell(self, websocket, message: str) -> None:
            await websocket.send_json({"message": message})
    """
    after = """
        from vllm_omni_errors.transports.websocket import send_error


        async def tell(self, websocket, error: Exception) -> None:
            await send_error(websocket, error)
    """


# ---- /v1/realtime/robot/openpi --------------------------------------------------------------------------------------


class RobotFraming(_Transports, InsertStatements):
    """Errors that the boundary sends are msgpack here, like everything else."""

    module = ROBOT
    function = ROBOT_SESSION
    imports = ((_LIBRARY, "set_framing"),)
    new = "set_framing(self.websocket, _pack)"
    before = """
        async def serve(self):
            await self.websocket.accept()
    """
    after = """
        from vllm_omni_errors.transports.websocket import set_framing


        async def serve(self):
            set_framing(self.websocket, _pack)
            await self.websocket.accept()
    """


class RobotSendsExceptions(_Transports, SendExceptions):
    """One way to send an error; what is not the client's ends the session."""

    module = ROBOT
    function = "RobotRealtimeConnection._send_error"
    shape = "7d1056e5144d"
    imports = ((_LIBRARY, "send_error"),)
    body = "await send_error(self.websocket, error)"
    before = """
        async def tell(self, message: str) -> None:
            await self.websocket.send_bytes(pack({"message": message}))
    """
    after = """
        from vllm_omni_errors.transports.websocket import send_error


        async def tell(self, error: Exception) -> None:
            await send_error(self.websocket, error)
    """


class RobotOnlyBytes(_Transports):
    """A text frame where bytes are expected was ignored; it is answered now."""

    module = ROBOT
    function = ROBOT_SESSION
    imports = (("vllm.exceptions", "VLLMValidationError"),)
    before = """
        async def serve(self):
            while True:
                if "bytes" not in msg or not msg["bytes"]:
                    continue
                await infer(msg)
    """
    after = """
        from vllm.exceptions import VLLMValidationError


        async def serve(self):
            while True:
                if "bytes" not in msg or not msg["bytes"]:
                    await self._send_error(VLLMValidationError("Messages must be binary frames, each a msgpack map."))
                    continue
                await infer(msg)
    """

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If:
        if not self.inside() or not code(original_node.test).startswith('"bytes" not in '):
            return updated_node
        self.found += 1
        told = 'await self._send_error(VLLMValidationError("Messages must be binary frames, each a msgpack map."))'
        body = [*statements(told), *updated_node.body.body]
        return updated_node.with_changes(body=updated_node.body.with_changes(body=body))


class RobotPayload(_Transports, ReplaceClause):
    """Only what decoding the client's bytes raises is the client's, and what is wrong with them is said."""

    module = ROBOT
    function = ROBOT_SESSION
    clauses = (("Exception",),)
    about = "self._unpack_request"
    clause = clauses[0]
    imports = (("vllm_omni_errors.seams", "payload_error"),)
    new = """
        except Exception as error:
            await self._send_error(payload_error(error))
            continue
    """
    before = """
        async def serve(self):
            while True:
                try:
                    obs = self._unpack_request(msg)
                except Exception:
                    await self._send_error("wrong")
                    continue
    """
    after = """
        from vllm_omni_errors.seams import payload_error


        async def serve(self):
            while True:
                try:
                    obs = self._unpack_request(msg)
                except Exception as error:
                    await self._send_error(payload_error(error))
                    continue
    """


class RobotInferenceFails(_Transports, ReplaceClause):
    """A failed inference is told by what it is: the client's leaves the connection open, any other ends it."""

    module = ROBOT
    function = ROBOT_SESSION
    clauses = (("Exception",),)
    about = "self.serving.infer"
    clause = clauses[0]
    new = """
        except Exception as error:
            await self._send_error(error)
    """
    before = """
        async def serve(self):
            try:
                await self.serving.infer(obs)
            except Exception:
                log("failed")
    """
    after = """
        async def serve(self):
            try:
                await self.serving.infer(obs)
            except Exception as error:
                await self._send_error(error)
    """


class RobotSessionEnds(_EndsAtBoundary):
    __doc__ = _EndsAtBoundary.__doc__
    module = ROBOT
    function = ROBOT_SESSION


# ---- /v1/realtime ---------------------------------------------------------------------------------------------------


class RealtimeSession(_Transports, AddMethods):
    """vLLM's loop lost binary frames, told raw texts and never closed with an error; its errors have only a text and a
    code, which are typed here."""

    module = REALTIME
    function = "RealtimeConnection"
    imports = (
        ("vllm.entrypoints.speech_to_text.realtime.protocol", "SessionCreated"),
        ("fastapi", "WebSocketDisconnect"),
        (_LIBRARY, "receive_text"),
        (_LIBRARY, "send_error"),
        ("vllm_omni_errors.transports.realtime", "event_error"),
        ("vllm_omni_errors.transports.realtime", "read_event"),
        ("vllm_omni_errors.transports.realtime", "reported_error"),
    )
    new = """
        async def handle_connection(self):
            await self.websocket.accept()
            self._is_connected = True
            try:
                await self.send(SessionCreated())
                while True:
                    message = await receive_text(self.websocket)
                    event = {}
                    try:
                        event = read_event(message)
                        await self.handle_event(event)
                    except Exception as e:
                        await send_error(self.websocket, event_error(e), answers=event.get("event_id"))
            except WebSocketDisconnect:
                self._is_connected = False
            finally:
                await self.cleanup()

        async def send_error(self, message: str, code: str | None = None):
            raise reported_error(message, code)
    """
    before = """
        class Connection:
            async def send_json(self):
                return 1
    """
    after = """
        from fastapi import WebSocketDisconnect
        from vllm.entrypoints.speech_to_text.realtime.protocol import SessionCreated
        from vllm_omni_errors.transports.realtime import event_error, read_event, reported_error
        from vllm_omni_errors.transports.websocket import receive_text, send_error


        class Connection:
            async def send_json(self):
                return 1

            async def handle_connection(self):
                await self.websocket.accept()
                self._is_connected = True
                try:
                    await self.send(SessionCreated())
                    while True:
                        message = await receive_text(self.websocket)
                        event = {}
                        try:
                            event = read_event(message)
                            await self.handle_event(event)
                        except Exception as e:
                            await send_error(self.websocket, event_error(e), answers=event.get("event_id"))
                except WebSocketDisconnect:
                    self._is_connected = False
                finally:
                    await self.cleanup()

            async def send_error(self, message: str, code: str | None = None):
                raise reported_error(message, code)
    """


class RealtimeTurnFails(_Transports, ReplaceClause):
    """The error is the last event of a turn that fails, and ends the session unless it is the client's."""

    module = REALTIME
    function = "RealtimeConnection._run_generation"
    clauses = (("Exception",),)
    about = "self.engine.generate"
    clause = clauses[0]
    imports = ((_LIBRARY, "report_error"),)
    new = """
        except Exception as e:
            audio_done_sent = True  # nothing that looks like success follows an error
            await report_error(self.websocket, e)
    """
    before = """
        async def generate(self):
            try:
                await self.engine.generate()
            except Exception as e:
                log(e)
    """
    after = """
        from vllm_omni_errors.transports.websocket import report_error


        async def generate(self):
            try:
                await self.engine.generate()
            except Exception as e:
                audio_done_sent = True  # nothing that looks like success follows an error
                await report_error(self.websocket, e)
    """


# ---- /v1/duplex, /v1/realtime?duplex=1 ------------------------------------------------------------------------------


class DuplexObject(_Transports, ReplaceBody):
    """Errors of a session have the canonical object; a word that is not known is the server's, not the client's."""

    module = DUPLEX_EVENTS
    function = "ErrorEvent.error"
    shape = "061d88d8539a"
    imports = (("vllm_omni_errors.transports.realtime", "duplex_object"),)
    body = """
        extra = cast("Mapping[str, object]", wire_value(self.extra))
        return duplex_object(self.code, self.message, self.param, self.related_event_id, extra)
    """
    before = """
        def error(self):
            return {"message": self.message}
    """
    after = """
        from vllm_omni_errors.transports.realtime import duplex_object


        def error(self):
            extra = cast("Mapping[str, object]", wire_value(self.extra))
            return duplex_object(self.code, self.message, self.param, self.related_event_id, extra)
    """


class DuplexWord(_Transports, ReplaceBody):
    """The word for what went wrong stands beside the object, whose code is a status now."""

    module = "protocol/realtime/events.py"
    function = "ErrorEvent._wire_fields"
    shape = "2d08d1557726"
    body = 'return {"error": self.error, "code": self.code}'
    before = """
        def fields(self):
            return {"error": self.error}
    """
    after = """
        def fields(self):
            return {"error": self.error, "code": self.code}
    """


class DuplexHandshakeRaises(_Transports):
    """A session that cannot be opened or resumed ends in the event and the close code; the socket broke off.

    A first message that is no event can be corrected, and is only answered. A clause that takes everything does not
    know what it caught."""

    module = DUPLEX
    function = DUPLEX_HANDLER
    hits = 10
    imports = (
        ("vllm_omni_errors.transports.realtime", "duplex_error"),
        ("vllm_omni_errors.transports.realtime", "resume_error"),
    )
    before = """
        class Handler:
            async def open(self, envelope, send_json):
                try:
                    return await run()
                except Failed as exc:
                    await send_json(envelope.error_payload(exc.code, str(exc)))
                    return None
    """
    after = """
        from vllm_omni_errors.transports.realtime import duplex_error


        class Handler:
            async def open(self, envelope, send_json):
                try:
                    return await run()
                except Failed as exc:
                    raise duplex_error(exc.code, str(exc)) from exc
    """

    def __init__(self) -> None:
        super().__init__()
        self._caught: list[tuple[str | None, tuple[str, ...]]] = []

    def visit_ExceptHandler(self, node: cst.ExceptHandler) -> None:
        self._caught.append((code(node.name.name) if node.name else None, caught_types(node)))

    def leave_ExceptHandler(
        self, original_node: cst.ExceptHandler, updated_node: cst.ExceptHandler
    ) -> cst.ExceptHandler:
        self._caught.pop()
        return updated_node

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        if not self.inside() or len(updated_node.body) < 2:
            return updated_node
        *others, told, last = updated_node.body
        call = code(told).strip()
        start = "await send_json("
        if code(last).strip() != "return None" or not call.startswith(start) or "envelope.error_payload(" not in call:
            return updated_node
        payload = cst.ensure_type(cst.parse_expression(call[len(start) : -1].strip().rstrip(",")), cst.Call)
        if code(payload.args[0].value) in ('"bad_event"', '"invalid_json"'):
            return updated_node
        self.found += 1
        caught, types = self._caught[-1] if self._caught else (None, ())
        raised = code(payload.with_changes(func=cst.Name("duplex_error")))
        if types == ("Exception",):
            raised = f"resume_error({caught})"
        cause = f" from {caught}" if caught else ""
        return updated_node.with_changes(body=[*others, *statements(f"raise {raised}{cause}")])


class DuplexFirstGoesOn(_FirstMessageGoesOn):
    __doc__ = _FirstMessageGoesOn.__doc__
    module = DUPLEX
    function = f"{DUPLEX_HANDLER}.handle_realtime_session"
    assigned = "first"
    before = _FirstMessageGoesOn.before.replace("start", "first")
    after = _FirstMessageGoesOn.after.replace("start", "first")


class DuplexSessionEnds(_Transports, InTry):
    """What ends a connection travels to the boundary, after what it had attached is closed."""

    module = DUPLEX
    function = f"{DUPLEX_HANDLER}.handle_realtime_session"
    clauses = _SESSION
    before = """
        async def serve(self):
            try:
                await run()
            except WebSocketDisconnect:
                await gone()
            except Exception as exc:
                log(exc)
                if attachment is not None:
                    await attachment.close()
                with suppress(Exception):
                    await tell(str(exc))
    """
    after = """
        async def serve(self):
            try:
                await run()
            except WebSocketDisconnect:
                await gone()
            except Exception:
                if attachment is not None:
                    await attachment.close()
                raise
    """

    def on_try(self, original: cst.Try, updated: cst.Try) -> cst.Try:
        *others, last = updated.handlers
        kept = [each for each in last.body.body if isinstance(each, cst.If)]
        body = last.body.with_changes(body=[*kept, *statements("raise")])
        return updated.with_changes(handlers=[*others, last.with_changes(name=None, body=body)])


class DuplexPumpFails(_Transports, ReplaceClause):
    """The only sender of a session's events failed in silence, and the session looked as if it had ended well."""

    module = DUPLEX
    function = f"{DUPLEX_HANDLER}._pump_events"
    clauses = (("asyncio.CancelledError",), ("Exception",))
    clause = ("Exception",)
    imports = (("vllm_omni.engine.duplex.events", "ErrorEvent"),)
    new = """
        except Exception:
            logger.exception("The event pump of duplex session %s failed", session_id)
            close_reason = "internal_error"
            await self._send_event(session_id, ErrorEvent(session_id=session_id, code=close_reason))
    """
    before = """
        async def pump(self):
            try:
                await run()
            except asyncio.CancelledError:
                raise
            except Exception as exc:
                log(exc)
    """
    after = """
        from vllm_omni.engine.duplex.events import ErrorEvent


        async def pump(self):
            try:
                await run()
            except asyncio.CancelledError:
                raise
            except Exception:
                logger.exception("The event pump of duplex session %s failed", session_id)
                close_reason = "internal_error"
                await self._send_event(session_id, ErrorEvent(session_id=session_id, code=close_reason))
    """


class DuplexCloseCode(_Transports, ReplaceKeyword):
    """A session that ends because the server failed is not closed with the code of one that ended well."""

    module = "entrypoints/duplex/websocket.py"
    function = "attachment_callbacks"
    callee = "close"
    keyword = "code"
    value = '1011 if reason == "internal_error" else 1000'
    before = """
        def callbacks():
            return close(code=1000, reason=reason)
    """
    after = """
        def callbacks():
            return close(code=1011 if reason == "internal_error" else 1000, reason=reason)
    """


class DuplexOnlyText(_OnlyText):
    __doc__ = _OnlyText.__doc__
    module = "entrypoints/duplex/websocket.py"
    function = "receive_text_with_timeout"
    hits = 2


class DuplexFirstAnyText(_AnyText):
    __doc__ = _AnyText.__doc__
    module = DUPLEX
    function = f"{DUPLEX_HANDLER}._receive_first_message"


class DuplexAnyText(_AnyText):
    __doc__ = _AnyText.__doc__
    module = DUPLEX
    function = f"{DUPLEX_HANDLER}._read_loop"


REVIEWED: tuple[str, ...] = (
    "duplex_websocket",
    "realtime_robot_openpi",
    "realtime_websocket",
    "streaming_speech",
    "streaming_video_chat",
    "streaming_video_output",
)
"""Routes whose own errors are all typed: a raw exception on them is 500."""

DECIDED: Mapping[str, tuple[str, ...]] = {
    SPEECH: (SPEECH_SESSION, SPEECH_UNIT, "OmniStreamingSpeechHandler._parse_message"),
    VIDEO: ("*",),
    VIDEO_CHAT: (f"{VIDEO_CHAT_HANDLER}.*",),
    ROBOT: ("_decode_*", "RobotRealtimeConnection.*"),
}
"""Functions whose decided sites change."""

SOCKETS: tuple[type[Rewrite], ...] = (
    SpeechRefused,
    VideoChatRefused,
    VideoRefused,
    RealtimeRefused,
    DuplexRefused,
    RobotRefused,
    SharedDuplexRefused,
    SpeechOnlyText,
    SpeechAnyText,
    SpeechDeadline,
    SpeechSendsExceptions,
    SpeechConfigFields,
    SpeechConfigModel,
    SpeechHandshakeGoesOn,
    SpeechSessionEnds,
    SpeechUnitFields,
    SpeechUnitFails,
    VideoStartGoesOn,
    VideoStartOnlyText,
    VideoStartAnyText,
    VideoStartDeadline,
    VideoStartFields,
    VideoFormat,
    VideoControlOnlyText,
    VideoControlAnyText,
    VideoStall,
    VideoRequestId,
    VideoControlIsWatched,
    VideoControl,
    VideoInteractionFails,
    VideoEchoesEventId,
    VideoSessionEnds,
    VideoSendsExceptions,
    VideoChatConfigGoesOn,
    VideoChatConfigOnlyText,
    VideoChatConfigAnyText,
    VideoChatConfigDeadline,
    VideoChatConfigFields,
    VideoChatOnlyText,
    VideoChatAnyText,
    VideoChatTextFields,
    VideoChatIdle,
    VideoChatReaderFails,
    VideoChatTurnIsWatched,
    VideoChatAudio,
    VideoChatQueryAudio,
    VideoChatSessionEnds,
    VideoChatRequest,
    VideoChatPreprocessing,
    VideoChatTurnFails,
    VideoChatAudioEncoding,
    VideoChatSendsExceptions,
    RobotFraming,
    RobotSendsExceptions,
    RobotOnlyBytes,
    RobotPayload,
    RobotInferenceFails,
    RobotSessionEnds,
    RealtimeSession,
    RealtimeTurnFails,
    DuplexObject,
    DuplexWord,
    DuplexHandshakeRaises,
    DuplexFirstGoesOn,
    DuplexSessionEnds,
    DuplexPumpFails,
    DuplexCloseCode,
    DuplexOnlyText,
    DuplexFirstAnyText,
    DuplexAnyText,
)
