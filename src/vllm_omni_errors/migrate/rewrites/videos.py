# SPDX-License-Identifier: Apache-2.0
"""Phase `requests`: videos and their jobs."""

from collections.abc import Mapping
from typing import ClassVar

import libcst as cst

from vllm_omni_errors.migrate.rewrite import Rewrite, code
from vllm_omni_errors.migrate.rewrites.shapes import (
    AddArgument,
    AddFirstClause,
    CatchInstead,
    DropCalls,
    InsertStatements,
    InTry,
    RemoveDefinitions,
    ReplaceBranch,
    ReplaceClass,
    ReplaceClauses,
    StopTranslating,
    WidenClause,
    WrapCallee,
)

API_SERVER = "entrypoints/openai/api_server.py"
HELPERS = "entrypoints/openai/video/generation/helpers.py"
MEDIA = "entrypoints/openai/video_api_utils.py"
SERVING = "entrypoints/openai/serving_video.py"
PROTOCOL = "entrypoints/openai/protocol/videos.py"
JOB = "_run_video_generation_job"
FORM = "_parse_video_form"

REVIEWED: tuple[str, ...] = (
    "create_video",
    "create_video_sync",
    "delete_video",
    "download_video",
    "list_videos",
    "retrieve_video",
)
"""Routes whose own errors are all typed: a raw exception on them is 500."""


class _Videos(Rewrite):
    phase = "requests"


# ---- the record of a failed job ------------------------------------------------------------------------------------


class StoredError(_Videos, ReplaceClass):
    """A failed job keeps the same error object that every other transport shows."""

    module = PROTOCOL
    function = "VideoError"
    imports = (("vllm_omni_errors.transports.jobs", "JobError"),)
    new = '''
        class VideoError(JobError):
            """Why a job failed, decided once."""
    '''
    before = """
        class VideoError(BaseModel):
            code: int
            message: str
    """
    after = '''
        from vllm_omni_errors.transports.jobs import JobError


        class VideoError(JobError):
            """Why a job failed, decided once."""
    '''


class JobStoresItsError(_Videos):
    """A job stored the raw text of whatever it failed with, and the status was guessed from it later."""

    module = HELPERS
    function = JOB
    hits = 2
    callee: ClassVar[str] = "_video_error_from_exception"
    before = """
        async def _run_video_generation_job(video_id):
            try:
                await generate()
            except Exception as exc:
                await store(error=_video_error_from_exception(exc))
    """
    after = """
        async def _run_video_generation_job(video_id):
            try:
                await generate()
            except Exception as exc:
                await store(error=VideoError.of(exc, request_id=video_id))
    """

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        if not self.inside() or code(original_node.func) != self.callee:
            return updated_node
        self.found += 1
        return cst.parse_expression(f"VideoError.of({code(original_node.args[0].value)}, request_id=video_id)")


class JobLogsOnce(_Videos, DropCalls):
    """A client's mistake was logged with a traceback; making the error object logs it once, as every route does."""

    module = HELPERS
    function = JOB
    callee = "logger.exception"
    hits = 2
    before = """
        def run(video_id):
            try:
                generate()
            except Exception as exc:
                logger.exception("failed: %s", video_id)
                store(exc)
    """
    after = """
        def run(video_id):
            try:
                generate()
            except Exception as exc:
                store(exc)
    """


class NothingRecomputed(_Videos, RemoveDefinitions):
    """The status of a failed job was derived anew at each request, from the text of its message."""

    module = HELPERS
    names = ("_status_code_for_video_failure", "_video_error_from_exception")
    hits = 2
    before = """
        def _status_code_for_video_failure(error):
            return int(error.message.partition(":")[0])


        def _video_error_from_exception(exc):
            return VideoError(code=500, message=str(exc))


        def run():
            return None
    """
    after = """
        def run():
            return None
    """


class RetrieveShowsTheJob(_Videos, ReplaceBranch):
    """A failed job came as the body of an HTTP 5xx, which clients repeat and cannot tell from a failed request."""

    module = API_SERVER
    function = "retrieve_video"
    test = "job.status == VideoGenerationStatus.FAILED"
    before = """
        async def retrieve_video(video_id):
            job = await load(video_id)
            if job.status == VideoGenerationStatus.FAILED:
                return JSONResponse(job, status_code=guess(job.error))
            return job
    """
    after = """
        async def retrieve_video(video_id):
            job = await load(video_id)
            return job
    """


class ContentRaisesTheStoredError(_Videos, ReplaceBranch):
    """The content of a failed job was 422, whatever the job failed with."""

    module = API_SERVER
    function = "download_video"
    test = "job.status == VideoGenerationStatus.FAILED"
    new = "raise job.error.to_exception()"
    before = """
        async def download_video(job):
            if job.status == VideoGenerationStatus.FAILED:
                raise HTTPException(status_code=422, detail="no")
            return read(job)
    """
    after = """
        async def download_video(job):
            if job.status == VideoGenerationStatus.FAILED:
                raise job.error.to_exception()
            return read(job)
    """


class JobRequestId(_Videos, InsertStatements):
    """The answer to a new job had no request id; it is the job's own, which its error has too."""

    module = API_SERVER
    function = "create_video"
    after_assignment = "ref"
    new = "raw_request.state.request_metadata = RequestResponseMetadata(request_id=ref.id)"
    before = """
        async def create_video(raw_request, request):
            ref = make(request)
            return ref
    """
    after = """
        async def create_video(raw_request, request):
            ref = make(request)
            raw_request.state.request_metadata = RequestResponseMetadata(request_id=ref.id)
            return ref
    """


# ---- synchronous generation ----------------------------------------------------------------------------------------


class SyncDeadline(_Videos):
    """An engine's own timeout was reported as the expiry of the route's deadline."""

    module = API_SERVER
    function = "create_video_sync"
    imports = (("vllm_omni_errors.stage", "deadline"),)
    before = """
        async def create_video_sync(handler, request):
            return await asyncio.wait_for(handler.generate(request), timeout=LIMIT_S)
    """
    after = """
        from vllm_omni_errors.stage import deadline


        async def create_video_sync(handler, request):
            return await deadline(LIMIT_S)(handler.generate)(request)
    """

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        if not self.inside() or code(original_node.func) != "asyncio.wait_for":
            return updated_node
        self.found += 1
        waited = cst.ensure_type(updated_node.args[0].value, cst.Call)
        limit = code(updated_node.args[1].value)
        return waited.with_changes(func=cst.parse_expression(f"deadline({limit})({code(waited.func)})"))


class SyncPropagates(_Videos, StopTranslating):
    """A client error was trusted with any status, and every failure showed its raw text."""

    module = API_SERVER
    function = "create_video_sync"
    clauses = (
        ("asyncio.TimeoutError",),
        ("EngineGenerateError", "EngineDeadError"),
        ("HTTPException",),
        ("OmniClientError",),
        ("Exception",),
    )
    before = """
        async def create_video_sync():
            try:
                answer = await run()
            except asyncio.TimeoutError:
                raise HTTPException(504, "timed out")
            except (EngineGenerateError, EngineDeadError) as exc:
                return dead(exc)
            except HTTPException:
                raise
            except OmniClientError as exc:
                raise HTTPException(exc.status_code, exc.message) from exc
            except Exception as exc:
                raise HTTPException(500, str(exc)) from exc
            finally:
                clean()
            return answer
    """
    after = """
        async def create_video_sync():
            try:
                answer = await run()
            finally:
                clean()
            return answer
    """


# ---- the form -----------------------------------------------------------------------------------------------------


class FormSetupPropagates(_Videos, StopTranslating):
    """A failure of the server's own state was quoted to the client, and a model that is not served was 400."""

    module = HELPERS
    function = FORM
    clauses = (("HTTPException",), ("Exception",))
    before = """
        async def _parse_video_form(request):
            try:
                name = choose(request)
            except HTTPException:
                raise
            except Exception as e:
                raise HTTPException(500, str(e))
            return name
    """
    after = """
        async def _parse_video_form(request):
            name = choose(request)
            return name
    """


class FormFields(_Videos, WrapCallee):
    """What is wrong with a field that only the request's model checks is the client's, and named."""

    module = HELPERS
    function = FORM
    callee = "VideoGenerationRequest"
    wrapper = "reads_request"
    imports = (("vllm_omni_errors.seams", "reads_request"),)
    before = """
        async def _parse_video_form(data):
            return VideoGenerationRequest(**data)
    """
    after = """
        from vllm_omni_errors.seams import reads_request


        async def _parse_video_form(data):
            return reads_request(VideoGenerationRequest)(**data)
    """


class ClipLength(_Videos, WrapCallee):
    """A length of clip that no number of frames can hold overflowed, far from the check of its form."""

    module = PROTOCOL
    function = "VideoGenerationRequest.resolve_video_params"
    callee = "int"
    wrapper = "reads_request"
    arguments = ', parameter="seconds"'
    imports = (("vllm_omni_errors.seams", "reads_request"),)
    before = """
        def frames(seconds, fps):
            return int(float(seconds) * fps)
    """
    after = """
        from vllm_omni_errors.seams import reads_request


        def frames(seconds, fps):
            return reads_request(int, parameter="seconds")(float(seconds) * fps)
    """


class FrameRate(_Videos, InsertStatements):
    """A frame rate that the encoder cannot hold failed after the whole generation, as the server's mistake."""

    module = PROTOCOL
    function = "VideoGenerationRequest.resolve_video_params"
    after_assignment = "vp"
    imports = (("vllm_omni_errors.seams", "check_frame_rate"),)
    new = """
        check_frame_rate(vp.fps, parameter="fps")
        if self.video_params is not None:
            check_frame_rate(self.video_params.fps, parameter="video_params.fps")
    """
    before = """
        class Request:
            def resolve(self):
                vp = Video(fps=self.fps)
                return vp
    """
    after = """
        from vllm_omni_errors.seams import check_frame_rate


        class Request:
            def resolve(self):
                vp = Video(fps=self.fps)
                check_frame_rate(vp.fps, parameter="fps")
                if self.video_params is not None:
                    check_frame_rate(self.video_params.fps, parameter="video_params.fps")
                return vp
    """


class QualityNotQuoted(_Videos):
    """The text of a wrong quality quoted it."""

    module = PROTOCOL
    function = "VideoGenerationRequest.validate_quality"
    before = """
        def validate_quality(value):
            if value not in LEVELS:
                raise ValueError(f"not {value!r}")
            return value
    """
    after = """
        def validate_quality(value):
            if value not in LEVELS:
                raise ValueError("quality must be 'lossless' or 'high'.")
            return value
    """

    def leave_Raise(self, original_node: cst.Raise, updated_node: cst.Raise) -> cst.Raise:
        if not self.inside():
            return updated_node
        self.found += 1
        text = "quality must be 'lossless' or 'high'."
        return updated_node.with_changes(exc=cst.parse_expression(f'ValueError("{text}")'))


class JsonField(_Videos, CatchInstead):
    """JSON that is nested too deeply, or holds a number of too many digits, failed as the server's mistake."""

    module = HELPERS
    function = "_parse_form_json"
    clauses = (("json.JSONDecodeError",),)
    clause = ("json.JSONDecodeError",)
    types = "(ValueError, RecursionError)"
    before = """
        def _parse_form_json(value):
            try:
                return json.loads(value)
            except json.JSONDecodeError as exc:
                raise BadField from exc
    """
    after = """
        def _parse_form_json(value):
            try:
                return json.loads(value)
            except (ValueError, RecursionError) as exc:
                raise BadField from exc
    """


class JsonFieldTakesItsName(_Videos):
    """The reader of JSON fields did not know which one it read."""

    module = HELPERS
    function = "_parse_form_json"
    before = """
        def _parse_form_json(value):
            return read(value)
    """
    after = """
        def _parse_form_json(value, *, parameter: str | None = None):
            return read(value)
    """

    def on_function(self, original: cst.FunctionDef, updated: cst.FunctionDef) -> cst.FunctionDef:
        self.found += 1
        annotation = cst.Annotation(annotation=cst.parse_expression("str | None"))
        added = cst.Param(name=cst.Name("parameter"), annotation=annotation, default=cst.Name("None"))
        return updated.with_changes(params=updated.params.with_changes(kwonly_params=[added]))


class JsonFieldNamed(_Videos):
    """A field that is not JSON, or the wrong kind of it, is named: each is read from the variable of its name."""

    module = HELPERS
    function = FORM
    hits = 5
    before = """
        async def _parse_video_form(lora):
            return _parse_form_json(lora)
    """
    after = """
        async def _parse_video_form(lora):
            return _parse_form_json(lora, parameter="lora")
    """

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        if not self.inside() or code(original_node.func) != "_parse_form_json":
            return updated_node
        self.found += 1
        field = code(original_node.args[0].value)
        named = cst.ensure_type(cst.parse_expression(f'f(parameter="{field}")'), cst.Call).args
        return updated_node.with_changes(args=[*updated_node.args, *named])


class _NamesField(_Videos, AddArgument):
    """The error names the field, which the function knows in a variable."""

    module = HELPERS
    callee = "VLLMValidationError"
    argument = "parameter=field_name"
    before = """
        def check(value, field_name):
            if not value:
                raise VLLMValidationError("empty")
    """
    after = before.replace('("empty")', '("empty", parameter=field_name)')


class JsonErrorNamesField(_NamesField):
    __doc__ = _NamesField.__doc__
    function = "_parse_form_json"
    argument = "parameter=parameter"
    hits = 2
    after = _NamesField.after.replace("field_name)\n", "parameter)\n").replace("=field_name", "=parameter")


class MaskErrorNamesField(_NamesField):
    __doc__ = _NamesField.__doc__
    function = "_parse_latent_edit_mask_json"


class MaskJsonNamesField(_NamesField):
    __doc__ = _NamesField.__doc__
    function = "_parse_latent_edit_mask_json"
    callee = "_parse_form_json"
    before = """
        def check(value, field_name):
            return _parse_form_json(value)
    """
    after = """
        def check(value, field_name):
            return _parse_form_json(value, parameter=field_name)
    """


class MaskFileErrorNamesField(_NamesField):
    __doc__ = _NamesField.__doc__
    function = "_read_latent_edit_mask_json"
    hits = 5


class SourceErrorNamesField(_NamesField):
    __doc__ = _NamesField.__doc__
    function = "_persist_latent_edit_source"


class UploadErrorNamesField(_NamesField):
    __doc__ = _NamesField.__doc__
    function = "_persist_uploaded_reference"
    callee = "VLLMUnprocessableEntityError"
    hits = 3
    before = _NamesField.before.replace("VLLMValidationError", callee)
    after = _NamesField.after.replace("VLLMValidationError", callee)


class _CleanUpAndRaise(_Videos, InTry):
    """Whatever ends the reading of references, the files of those read so far go, and the error travels as it is."""

    module = HELPERS
    function = FORM
    clauses = (("InvalidInputReferenceError",),)
    before = """
        async def _parse_video_form(paths):
            try:
                read(paths)
            except InvalidInputReferenceError as exc:
                remove(paths)
                raise HTTPException(400, detail=str(exc)) from exc
    """
    after = """
        async def _parse_video_form(paths):
            try:
                read(paths)
            except Exception:
                remove(paths)
                raise
    """

    def on_try(self, original: cst.Try, updated: cst.Try) -> cst.Try:
        (handler,) = updated.handlers
        kept = [*handler.body.body[:-1], cst.parse_statement("raise")]
        body = handler.body.with_changes(body=kept)
        return updated.with_changes(handlers=[handler.with_changes(type=cst.Name("Exception"), name=None, body=body)])


class ReferencesCleanUp(_CleanUpAndRaise):
    __doc__ = _CleanUpAndRaise.__doc__
    hits = 2


class ControlUploadCleansUp(_Videos, WidenClause):
    """The files of the references go as well when the control's upload is refused."""

    module = HELPERS
    function = FORM
    clause = ("asyncio.CancelledError", "HTTPException", "OSError", "TypeError", "ValueError")
    clauses = (clause,)
    added = "VLLMError"
    imports = (("vllm.exceptions", "VLLMError"),)
    before = """
        async def _parse_video_form():
            try:
                await keep()
            except (asyncio.CancelledError, HTTPException, OSError, TypeError, ValueError):
                remove()
                raise
    """
    after = """
        from vllm.exceptions import VLLMError


        async def _parse_video_form():
            try:
                await keep()
            except (asyncio.CancelledError, HTTPException, OSError, TypeError, ValueError, VLLMError):
                remove()
                raise
    """


# ---- media ---------------------------------------------------------------------------------------------------------


_REFERENCE_ERROR = '''
        class InvalidInputReferenceError(VLLMUnprocessableEntityError):
            """A reference in the request is permanently inaccessible, or does not decode."""

            def __init__(self, message: str = "Unusable reference.", *, parameter: str = "input_reference") -> None:
                super().__init__(message, parameter=parameter)
    '''


class ReferenceError422(_Videos, ReplaceClass):
    """A reference that cannot be used is unprocessable, 422; code around it goes on catching it by this name."""

    module = "entrypoints/openai/errors.py"
    function = "InvalidInputReferenceError"
    imports = (("vllm.exceptions", "VLLMUnprocessableEntityError"),)
    new = _REFERENCE_ERROR
    before = """
        class InvalidInputReferenceError(ValueError):
            pass
    """
    after = f"""
        from vllm.exceptions import VLLMUnprocessableEntityError

        {_REFERENCE_ERROR}"""


class TooManyPixels(_Videos):
    """The refusal of a large image named a file of the client's, or a setting of the server."""

    module = MEDIA
    hits = 2
    before = """
        def check(image, source):
            if image.width > 100:
                raise _ImagePixelLimitError(f"{image.width} is too wide")
            if image.height > 100:
                raise _ImagePixelLimitError(f"{source} is too high")
    """
    after = """
        def check(image, source):
            if image.width > 100:
                raise _ImagePixelLimitError("The reference image has more pixels than this server accepts.")
            if image.height > 100:
                raise _ImagePixelLimitError("The reference image has more pixels than this server accepts.")
    """

    def leave_Raise(self, original_node: cst.Raise, updated_node: cst.Raise) -> cst.Raise:
        made = updated_node.exc
        if not isinstance(made, cst.Call) or code(made.func) != "_ImagePixelLimitError":
            return updated_node
        self.found += 1
        text = "The reference image has more pixels than this server accepts."
        return updated_node.with_changes(exc=cst.parse_expression(f'_ImagePixelLimitError("{text}")'))


class DataUrlWithoutComma(_Videos):
    """A data URL without data failed in its unpacking, outside of any check; empty data is refused where it is read."""

    module = MEDIA
    hits = 3
    before = """
        def read(image_url, video_url, audio_url):
            _, image = image_url.split(",", 1)
            _, video = video_url.split(",", 1)
            _, audio = audio_url.split(",", 1)
            return image, video, audio
    """
    after = """
        def read(image_url, video_url, audio_url):
            _, _, image = image_url.partition(",")
            _, _, video = video_url.partition(",")
            _, _, audio = audio_url.partition(",")
            return image, video, audio
    """

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        value = original_node.value
        if not isinstance(value, cst.Call) or not isinstance(value.func, cst.Attribute) or len(value.args) != 2:
            return updated_node
        if value.func.attr.value != "split" or not isinstance(original_node.targets[0].target, cst.Tuple):
            return updated_node
        self.found += 1
        _, data = (code(element.value) for element in original_node.targets[0].target.elements)
        new = f"_, _, {data} = {code(value.func.value)}.partition({code(value.args[0].value)})"
        line = cst.ensure_type(cst.parse_statement(new), cst.SimpleStatementLine)
        return cst.ensure_type(line.body[0], cst.Assign)


class _Fetch(_Videos, ReplaceClauses):
    """Every failure of a download was the client's; one that may pass is 500, and an invalid URL is the client's."""

    module = MEDIA
    clauses = (("httpx.HTTPError",),)
    imports = (("vllm_omni_errors.media", "media_error"),)
    before = """
        async def fetch(client, url):
            try:
                return await client.get(url)
            except httpx.HTTPError as exc:
                raise BadReference("no download") from exc
    """
    after = """
        from vllm_omni_errors.media import media_error


        async def fetch(client, url):
            try:
                return await client.get(url)
            except Exception as exc:
                raise media_error(exc, parameter="{parameter}") from exc
    """


class VideoFetch(_Fetch):
    __doc__ = _Fetch.__doc__
    function = "decode_video_url"
    new = 'except Exception as exc:\n    raise media_error(exc, parameter="video_reference") from exc'
    after = _Fetch.after.replace("{parameter}", "video_reference")


class AudioFetch(_Fetch):
    __doc__ = _Fetch.__doc__
    function = "decode_audio_url"
    new = 'except Exception as exc:\n    raise media_error(exc, parameter="audio_reference") from exc'
    after = _Fetch.after.replace("{parameter}", "audio_reference")


class ImageFetch(_Videos, CatchInstead):
    """A URL that is none raises outside of the client library's request errors."""

    module = MEDIA
    function = "decode_image_url"
    clauses = (("httpx.HTTPStatusError",), ("httpx.RequestError",))
    clause = ("httpx.RequestError",)
    types = "Exception"
    before = """
        async def fetch(client, url):
            try:
                return await client.get(url)
            except httpx.HTTPStatusError as exc:
                raise Refused from exc
            except httpx.RequestError as exc:
                raise Failed from exc
    """
    after = """
        async def fetch(client, url):
            try:
                return await client.get(url)
            except httpx.HTTPStatusError as exc:
                raise Refused from exc
            except Exception as exc:
                raise Failed from exc
    """


class BrokenImage(_Videos, WidenClause):
    """Pillow raises a `SyntaxError` for some broken images."""

    module = MEDIA
    function = "_decode_image_bytes"
    clause = ("UnidentifiedImageError", "OSError", "ValueError")
    clauses = (("_ImagePixelLimitError",), ("Image.DecompressionBombError",), clause)
    added = "SyntaxError"
    before = """
        def read(content):
            try:
                return Image.open(content)
            except (UnidentifiedImageError, OSError, ValueError) as exc:
                raise BadImage from exc
    """
    after = """
        def read(content):
            try:
                return Image.open(content)
            except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as exc:
                raise BadImage from exc
    """


class DecoderMissing(_Videos, AddFirstClause):
    """A decoder that is not installed, or has no memory, was reported as a video that does not decode."""

    module = MEDIA
    function = "_decode_video_bytes"
    clauses = (("Exception",),)
    new = "except (ImportError, MemoryError):\n    raise"
    before = """
        def read(content):
            try:
                return decode(content)
            except Exception as exc:
                raise BadVideo from exc
    """
    after = """
        def read(content):
            try:
                return decode(content)
            except (ImportError, MemoryError):
                raise
            except Exception as exc:
                raise BadVideo from exc
    """


class LoraNumbers(_Videos, WidenClause):
    """A LoRA whose numbers are none of a number's types failed as the server's mistake."""

    module = SERVING
    function = "OmniOpenAIServingVideo._apply_lora"
    clause = ("ValueError",)
    clauses = (clause,)
    added = "TypeError, OverflowError"
    before = """
        def read(body):
            try:
                return parse(body)
            except ValueError as e:
                raise BadLora from e
    """
    after = """
        def read(body):
            try:
                return parse(body)
            except (ValueError, TypeError, OverflowError) as e:
                raise BadLora from e
    """


class CodecOptionsAreText(_Videos, InsertStatements):
    """Options of the codec that are no text failed after the whole generation, as the server's mistake."""

    module = SERVING
    function = "OmniOpenAIServingVideo._run_and_extract"
    after_call = "gen_params.extra_args.update"
    imports = (("vllm_omni_errors.seams", "check_codec_options"),)
    new = "check_codec_options(request.extra_params)"
    before = """
        class Videos:
            async def run(self, request, gen_params):
                gen_params.extra_args.update(request.extra_params)
    """
    after = """
        from vllm_omni_errors.seams import check_codec_options


        class Videos:
            async def run(self, request, gen_params):
                gen_params.extra_args.update(request.extra_params)
                check_codec_options(request.extra_params)
    """


class CodecOptionsRefused(_Videos, WrapCallee):
    """An option that the encoder does not know was reported as the server's failure, with the encoder's command."""

    module = SERVING
    function = "OmniOpenAIServingVideo.generate_video_bytes"
    callee = "_encode_video_bytes"
    wrapper = "with_codec_options_of"
    arguments = ", request.extra_params"
    imports = (("vllm_omni_errors.seams", "with_codec_options_of"),)
    before = """
        class Videos:
            async def make(self, request, frames):
                return _encode_video_bytes(frames)
    """
    after = """
        from vllm_omni_errors.seams import with_codec_options_of


        class Videos:
            async def make(self, request, frames):
                return with_codec_options_of(_encode_video_bytes, request.extra_params)(frames)
    """


DECIDED: Mapping[str, tuple[str, ...]] = {
    API_SERVER: ("create_video_sync", "delete_video", "download_video", "retrieve_video"),
    HELPERS: ("*",),
    MEDIA: ("_decode_*", "decode_*"),
    SERVING: ("*",),
}
"""Functions whose decided sites change."""

VIDEOS: tuple[type[Rewrite], ...] = (
    StoredError,
    JobStoresItsError,
    JobLogsOnce,
    NothingRecomputed,
    RetrieveShowsTheJob,
    ContentRaisesTheStoredError,
    JobRequestId,
    SyncDeadline,
    SyncPropagates,
    FormSetupPropagates,
    FormFields,
    ClipLength,
    FrameRate,
    QualityNotQuoted,
    JsonField,
    JsonFieldTakesItsName,
    JsonFieldNamed,
    JsonErrorNamesField,
    MaskErrorNamesField,
    MaskJsonNamesField,
    MaskFileErrorNamesField,
    SourceErrorNamesField,
    UploadErrorNamesField,
    ReferencesCleanUp,
    ControlUploadCleansUp,
    ReferenceError422,
    TooManyPixels,
    DataUrlWithoutComma,
    VideoFetch,
    AudioFetch,
    ImageFetch,
    BrokenImage,
    DecoderMissing,
    LoraNumbers,
    CodecOptionsAreText,
    CodecOptionsRefused,
)
