# SPDX-License-Identifier: Apache-2.0
"""Phase `requests`: image and chat routes stop translating; their own mistakes in a request are semantic errors."""

from collections.abc import Mapping

from vllm_omni_errors.migrate.rewrite import Rewrite
from vllm_omni_errors.migrate.rewrites.shapes import (
    AddFirstClause,
    CatchInstead,
    DropErrorChecks,
    InsertStatements,
    RaiseReturnedError,
    RaiseReturnedName,
    ReplaceClauses,
    ReplaceKeyword,
    StopTranslating,
    WrapCallee,
)

API_SERVER = "entrypoints/openai/api_server.py"
CHAT = "entrypoints/openai/serving_chat.py"
BATCH = "entrypoints/openai/batch_serving.py"
IMAGES = "entrypoints/openai/images/helpers.py"
SIZES = "entrypoints/openai/image_api_utils.py"
CREATE_CHAT = "OmniOpenAIServingChat._create_chat_completion"
DIFFUSION_CHAT = "OmniOpenAIServingChat._create_diffusion_chat_completion"
GENERATE_IMAGES = "OmniOpenAIServingChat.generate_diffusion_images"
PREPARE_IMAGE = "OmniOpenAIServingChat._prepare_diffusion_image_request"

_LORA = "lora must have a name and a path; its int_id is an integer, and its scale a number."
_SIZE = "size must be 'WIDTHxHEIGHT' in positive integers, for example '1024x1024'."

REVIEWED = ("create_batch_chat_completion", "create_chat_completion", "edit_images", "generate_images")
"""Routes whose own errors are all typed."""

_ENGINE = ("EngineGenerateError", "EngineDeadError")
_IMAGE_CLAUSES = (_ENGINE, ("HTTPException",), ("OmniClientError",), ("ValueError",), ("Exception",))


class _Requests(Rewrite):
    phase = "requests"


# ---- clauses that translate ------------------------------------------------------------------------------------------


class _Propagate(_Requests, StopTranslating):
    before = """
        async def route():
            try:
                answer = await run()
            except (EngineGenerateError, EngineDeadError) as exc:
                return dead(exc)
            except Exception as e:
                raise HTTPException(500, str(e)) from e
            return answer
    """
    after = """
        async def route():
            answer = await run()
            return answer
    """


class ChatRoutePropagates(_Propagate):
    """A client's mistake in a chat request came out as 500: the route translated every exception."""

    module = API_SERVER
    function = "create_chat_completion"
    clauses = (_ENGINE, ("Exception",))


class BatchRoutePropagates(_Propagate):
    """A client's mistake in a batch came out as 500: the route translated every exception."""

    module = API_SERVER
    function = "create_batch_chat_completion"
    clauses = (_ENGINE, ("Exception",))


class _PropagateKeepingOne(_Propagate):
    keep = (("HTTPException",),)
    clauses = _IMAGE_CLAUSES
    before = """
        async def route():
            try:
                answer = await run()
            except (EngineGenerateError, EngineDeadError) as exc:
                return dead(exc)
            except HTTPException:
                raise
            except OmniClientError as e:
                raise HTTPException(e.status_code, e.message) from e
            except ValueError as e:
                raise HTTPException(400, str(e))
            except Exception as e:
                raise HTTPException(500, str(e))
            return answer
    """
    after = """
        async def route():
            try:
                answer = await run()
            except HTTPException:
                raise
            return answer
    """


class GenerateImagesPropagates(_PropagateKeepingOne):
    """Image generation reported any `ValueError`, its own output conversion's too, as the client's."""

    module = API_SERVER
    function = "generate_images"


class EditImagesPropagates(_PropagateKeepingOne):
    """Image editing reported any `ValueError`, its own output conversion's too, as the client's."""

    module = API_SERVER
    function = "edit_images"


class _PropagateValueError(_Propagate):
    clauses = (("ValueError",),)
    before = """
        def check(layers):
            try:
                layers = validate(layers)
            except ValueError as exc:
                return respond(str(exc), status_code=400)
            return layers
    """
    after = """
        def check(layers):
            layers = validate(layers)
            return layers
    """


class EditLayersPropagate(_PropagateValueError):
    """The check of `layers` says itself which parameter is wrong."""

    module = API_SERVER
    function = "edit_images"


class ChatLayersPropagate(_PropagateValueError):
    """The check of `layers` says itself which parameter is wrong."""

    module = CHAT
    function = DIFFUSION_CHAT


class ChatAnswerPropagates(_Propagate):
    """A raw `ValueError` of the answer's construction was reported as the client's."""

    module = CHAT
    function = CREATE_CHAT
    clauses = (("ValueError",),)
    about = "self.chat_completion_full_generator"
    before = """
        async def answer(self):
            try:
                return await self.chat_completion_full_generator()
            except ValueError as e:
                return respond(e)
    """
    after = """
        async def answer(self):
            return await self.chat_completion_full_generator()
    """


class ChatCollectionPropagates(_Propagate):
    """A raw `ValueError` of the engine was reported as the client's, and a 404 from a stage became 400."""

    module = CHAT
    function = "OmniOpenAIServingChat.chat_completion_full_generator"
    clauses = (("asyncio.CancelledError",), ("ValueError",))
    keep = (("asyncio.CancelledError",),)
    before = """
        async def collect():
            try:
                await drain()
            except asyncio.CancelledError:
                return gone()
            except ValueError as e:
                return respond(e)
    """
    after = """
        async def collect():
            try:
                await drain()
            except asyncio.CancelledError:
                return gone()
    """


class DiffusionChatPropagates(_Propagate):
    """Every failure was a 500 with the raw text of the exception and the type of a client error."""

    module = CHAT
    function = DIFFUSION_CHAT
    clauses = (("OmniClientError",), ("Exception",))
    LONGEST_UNWRAPPED = 0
    before = """
        async def answer():
            try:
                return await run()
            except OmniClientError as e:
                return respond(e.message, status_code=e.status_code)
            except Exception as e:
                return respond(str(e), status_code=500)
    """
    after = """
        async def answer():
            try:
                return await run()
            except Exception:
                raise  # rendered once, at the boundary
    """


# ---- seams: code of vLLM and of this tree that reads the request and raises raw types ---------------------------


class ChatPreprocessingSeam(_Requests, ReplaceClauses):
    """Only what reads the request is the client's: a `RuntimeError` in preprocessing is the server's own."""

    module = CHAT
    function = CREATE_CHAT
    clauses = (("ValueError", "TypeError", "RuntimeError", "jinja2.TemplateError"),)
    imports = (("vllm.exceptions", "VLLMValidationError"), ("vllm_omni_errors.seams", "request_error"))
    new = """
        except RecursionError as e:
            raise VLLMValidationError("The chat template is nested too deeply.", parameter="chat_template") from e
        except (ValueError, TypeError, OverflowError, jinja2.TemplateError) as e:
            raise request_error(e) from e
    """
    before = """
        import jinja2


        def preprocess():
            try:
                render()
            except (ValueError, TypeError, RuntimeError, jinja2.TemplateError) as e:
                return respond(str(e))
    """
    after = """
        import jinja2
        from vllm.exceptions import VLLMValidationError
        from vllm_omni_errors.seams import request_error


        def preprocess():
            try:
                render()
            except RecursionError as e:
                raise VLLMValidationError("The chat template is nested too deeply.", parameter="chat_template") from e
            except (ValueError, TypeError, OverflowError, jinja2.TemplateError) as e:
                raise request_error(e) from e
    """


class _ValueErrorSeam(_Requests, ReplaceClauses):
    clauses = (("ValueError",),)
    imports = (("vllm_omni_errors.seams", "request_error"),)
    new = "except ValueError as e:\n    raise request_error(e) from e"
    before = """
        def normalize():
            try:
                read()
            except ValueError as exc:
                return respond(str(exc), status_code=400)
    """
    after = """
        from vllm_omni_errors.seams import request_error


        def normalize():
            try:
                read()
            except ValueError as e:
                raise request_error(e) from e
    """


class ChatDiffusionArgumentsSeam(_ValueErrorSeam):
    """The reader of diffusion arguments raises raw `ValueError`s for the client's mistakes, and only it does there."""

    module = CHAT
    function = CREATE_CHAT
    about = "normalized_extra_args, diffusion_request_args"
    before = """
        def normalize():
            try:
                normalized_extra_args, diffusion_request_args = read()
            except ValueError as exc:
                return respond(str(exc), status_code=400)
    """
    after = """
        from vllm_omni_errors.seams import request_error


        def normalize():
            try:
                normalized_extra_args, diffusion_request_args = read()
            except ValueError as e:
                raise request_error(e) from e
    """


class LoraSeam(_ValueErrorSeam):
    """What is no number in a LoRA request is the client's mistake, whatever Python says about it."""

    module = "entrypoints/openai/lora.py"
    function = "_parse_lora_request"
    imports = (("vllm.exceptions", "VLLMValidationError"),)
    new = f'''
        except (ValueError, TypeError, OverflowError) as e:
            raise VLLMValidationError("{_LORA}", parameter="lora") from e
    '''
    before = """
        def read(body):
            try:
                return parse(body)
            except ValueError as e:
                raise HTTPException(400, str(e)) from e
    """
    after = f"""
        from vllm.exceptions import VLLMValidationError


        def read(body):
            try:
                return parse(body)
            except (ValueError, TypeError, OverflowError) as e:
                raise VLLMValidationError(
                    "{_LORA}", parameter="lora"
                ) from e
    """


class LoraJsonSeam(_Requests, CatchInstead):
    """A LoRA that is nested too deeply, or holds a number of too many digits, failed as the server's mistake."""

    module = "entrypoints/openai/lora.py"
    function = "_get_lora_from_json_str"
    clauses = (("json.JSONDecodeError",),)
    clause = ("json.JSONDecodeError",)
    types = "(ValueError, RecursionError)"
    before = """
        def read(body):
            try:
                return json.loads(body)
            except json.JSONDecodeError:
                raise BadLora
    """
    after = """
        def read(body):
            try:
                return json.loads(body)
            except (ValueError, RecursionError):
                raise BadLora
    """


class ChatParametersSeam(_ValueErrorSeam):
    """Sampling parameters are built from the request alone: what is wrong with them is the client's."""

    module = CHAT
    function = CREATE_CHAT
    about = "generator"
    new = "except (ValueError, TypeError, OverflowError) as e:\n    raise request_error(e) from e"
    before = """
        def schedule():
            try:
                generator = start()
                generators.append(generator)
            except ValueError as e:
                return respond(e)
    """
    after = """
        from vllm_omni_errors.seams import request_error


        def schedule():
            try:
                generator = start()
                generators.append(generator)
            except (ValueError, TypeError, OverflowError) as e:
                raise request_error(e) from e
    """


class InputProcessorSeam(_Requests, WrapCallee):
    """vLLM's input processor reads the request, and raises raw types for some of the client's mistakes."""

    module = "engine/async_omni_engine.py"
    function = "AsyncOmniEngine._build_add_request_message"
    callee = "self.input_processor.process_inputs"
    wrapper = "reads_request"
    imports = (("vllm_omni_errors.seams", "reads_request"),)
    before = """
        def build(self, prompt):
            return self.input_processor.process_inputs(prompt)
    """
    after = """
        from vllm_omni_errors.seams import reads_request


        def build(self, prompt):
            return reads_request(self.input_processor.process_inputs)(prompt)
    """


class TextTravels(_Requests, InsertStatements):
    """Half a character, which JSON may hold, failed on its way to a stage, as the server's mistake."""

    module = "engine/async_omni_engine.py"
    function = "AsyncOmniEngine._build_add_request_message"
    after_assignment = "params"
    imports = (("vllm_omni_errors.seams", "check_text"),)
    new = "check_text(request_id, prompt, effective_sampling_params_list)"
    before = """
        def build(request_id, prompt, effective_sampling_params_list):
            params = effective_sampling_params_list[0]
            return params
    """
    after = """
        from vllm_omni_errors.seams import check_text


        def build(request_id, prompt, effective_sampling_params_list):
            params = effective_sampling_params_list[0]
            check_text(request_id, prompt, effective_sampling_params_list)
            return params
    """


class ChatAdaptersSeam(_Requests, WrapCallee):
    """vLLM looks for an adapter in the parts of the messages, and fails on whatever a client may put there."""

    module = CHAT
    function = CREATE_CHAT
    callee = "self._maybe_get_adapters"
    wrapper = "reads_request"
    arguments = ', parameter="messages", also=(AttributeError, KeyError)'
    imports = (("vllm_omni_errors.seams", "reads_request"),)
    before = """
        def choose(self, request):
            x = self._maybe_get_adapters(request)
            return x
    """
    after = """
        from vllm_omni_errors.seams import reads_request


        def choose(self, request):
            x = reads_request(self._maybe_get_adapters, parameter="messages", also=(AttributeError, KeyError))(request)
            return x
    """


class StageParametersSeam(_Requests, WrapCallee):
    """A wrong type in a stage's parameters ended the thread that reads its requests: nobody was answered any more."""

    module = CHAT
    function = "OmniOpenAIServingChat._to_sampling_params_list"
    callee = "target_cls"
    wrapper = "reads_stage_parameters"
    hits = 2
    imports = (("vllm_omni_errors.seams", "reads_stage_parameters"),)
    before = """
        def convert(values):
            return target_cls(**values)
    """
    after = """
        from vllm_omni_errors.seams import reads_stage_parameters


        def convert(values):
            return reads_stage_parameters(target_cls)(**values)
    """


class StageParametersAreAList(_Requests, InsertStatements):
    """What is no list, or longer than the pipeline, failed with an error of the server's."""

    module = CHAT
    function = "OmniOpenAIServingChat._to_sampling_params_list"
    before_assignment = "final_sampling_params_list"
    imports = (("vllm_omni_errors.seams", "check_stage_parameters"),)
    new = "check_stage_parameters(sampling_params_list, stages=len(stage_configs))"
    before = """
        def convert(sampling_params_list, stage_configs):
            final_sampling_params_list = []
            return final_sampling_params_list
    """
    after = """
        from vllm_omni_errors.seams import check_stage_parameters


        def convert(sampling_params_list, stage_configs):
            check_stage_parameters(sampling_params_list, stages=len(stage_configs))
            final_sampling_params_list = []
            return final_sampling_params_list
    """


class ChatPromptErrorsTravel(_Requests, AddFirstClause):
    """Building an image prompt may fail softly; a message without a prompt is still the client's mistake."""

    module = CHAT
    function = CREATE_CHAT
    clauses = (("Exception",),)
    about = "extracted_prompt, reference_images"
    hits = 2
    imports = (("vllm.exceptions", "VLLMClientError"),)
    new = "except VLLMClientError:\n    raise"
    before = """
        def build():
            try:
                extracted_prompt, reference_images = extract()
            except Exception as e:
                log(e)
    """
    after = """
        from vllm.exceptions import VLLMClientError


        def build():
            try:
                extracted_prompt, reference_images = extract()
            except VLLMClientError:
                raise
            except Exception as e:
                log(e)
    """


class _MediaSeam(_Requests, ReplaceClauses):
    module = IMAGES
    function = "_load_input_images"
    clauses = (("Exception",),)
    hits = 3
    imports = (("vllm_omni_errors.media", "media_error"),)
    new = 'except Exception as e:\n    raise media_error(e, parameter="image") from e'


class InputImagesSeam(_MediaSeam):
    """Media that cannot be had or read is 422, a source that fails for the moment is 500; neither quotes the URL."""

    before = """
        def _load_input_images(source):
            try:
                return read(source)
            except Exception as e:
                raise ValueError(f"cannot read {source}: {e}")
    """
    after = """
        from vllm_omni_errors.media import media_error


        def _load_input_images(source):
            try:
                return read(source)
            except Exception as e:
                raise media_error(e, parameter="image") from e
    """


class InputImagesDecode(_Requests, InsertStatements):
    """Pillow reads pixels lazily: a truncated upload failed later, outside any check, as a 500."""

    module = IMAGES
    function = "_load_input_images"
    after_assignment = "img"
    hits = 3
    new = "img.load()"
    before = """
        def _load_input_images(source):
            img = read(source)
            images.append(img)
    """
    after = """
        def _load_input_images(source):
            img = read(source)
            img.load()
            images.append(img)
    """


class _ReferenceImages(_MediaSeam):
    """A reference image that does not decode was dropped, and the answer was made without it."""

    module = CHAT
    about = "pil_images.append"
    hits = 1
    before = """
        def collect(sources):
            for source in sources:
                try:
                    pil_images.append(open_image(source))
                except Exception as e:
                    logger.warning("cannot decode: %s", e)
    """
    after = """
        from vllm_omni_errors.media import media_error


        def collect(sources):
            for source in sources:
                try:
                    pil_images.append(open_image(source))
                except Exception as e:
                    raise media_error(e, parameter="{parameter}") from e
    """


class ChatReferenceImagesSeam(_ReferenceImages):
    """A reference image that does not decode was dropped, and the answer was made without it."""

    function = DIFFUSION_CHAT
    new = 'except Exception as e:\n    raise media_error(e, parameter="image_url") from e'
    after = _ReferenceImages.after.replace("{parameter}", "image_url")


class ImageReferencesSeam(_ReferenceImages):
    """A reference image that does not decode was dropped, and the answer was made without it."""

    function = PREPARE_IMAGE
    after = _ReferenceImages.after.replace("{parameter}", "image")


class _ReferenceImagesDecode(_Requests, InsertStatements):
    module = CHAT
    after_call = "pil_images.append"
    new = "pil_images[-1].load()"
    before = """
        def collect(source):
            pil_images.append(open_image(source))
    """
    after = """
        def collect(source):
            pil_images.append(open_image(source))
            pil_images[-1].load()
    """


class ChatReferenceImagesDecode(_ReferenceImagesDecode):
    """Pillow reads pixels lazily: a truncated image failed later, in the stage, as a 500."""

    function = DIFFUSION_CHAT


class ImageReferencesDecode(_ReferenceImagesDecode):
    """Pillow reads pixels lazily: a truncated image failed later, in the stage, as a 500."""

    function = PREPARE_IMAGE


class ChatDataUriSeam(_Requests, ReplaceClauses):
    """An image whose data URI has no data was dropped, and the answer was made without it."""

    module = CHAT
    function = "OmniOpenAIServingChat._extract_diffusion_prompt_and_media"
    clauses = (("ValueError",),)
    imports = (("vllm_omni_errors.media", "media_error"),)
    new = 'except ValueError as e:\n    raise media_error(e, parameter="image_url") from e'
    before = """
        def split(url):
            try:
                _, data = url.split(",", 1)
            except ValueError:
                logger.warning("no data")
    """
    after = """
        from vllm_omni_errors.media import media_error


        def split(url):
            try:
                _, data = url.split(",", 1)
            except ValueError as e:
                raise media_error(e, parameter="image_url") from e
    """


class ChatSizeSeam(_Requests, ReplaceClauses):
    """A size that is none was dropped, and the image had another size."""

    module = CHAT
    function = "OmniOpenAIServingChat._resolve_height_width_from_extra_body"
    clauses = (("ValueError",),)
    imports = (("vllm.exceptions", "VLLMValidationError"),)
    new = f'except ValueError as e:\n    raise VLLMValidationError("{_SIZE}", parameter="size") from e'
    before = """
        def resolve(size):
            try:
                return int(size)
            except ValueError:
                logger.warning("no size: %s", size)
    """
    after = f"""
        from vllm.exceptions import VLLMValidationError


        def resolve(size):
            try:
                return int(size)
            except ValueError as e:
                raise VLLMValidationError(
                    "{_SIZE}", parameter="size"
                ) from e
    """


class ChatSidesSeam(_Requests, InsertStatements):
    """A height or width that is no number failed in a stage, as the server's mistake."""

    module = CHAT
    function = "OmniOpenAIServingChat._resolve_height_width_from_extra_body"
    after_assignment = "width"
    imports = (("vllm_omni_errors.seams", "check_side"),)
    new = """
        check_side(height, parameter="height")
        check_side(width, parameter="width")
    """
    before = """
        def resolve(body):
            height, width = None, None
            width = body.get("width")
            return height, width
    """
    after = """
        from vllm_omni_errors.seams import check_side


        def resolve(body):
            height, width = None, None
            width = body.get("width")
            check_side(height, parameter="height")
            check_side(width, parameter="width")
            return height, width
    """


class _ChatLora(_Requests, ReplaceClauses):
    module = CHAT
    clauses = (("Exception",),)
    about = "parse_lora_request"
    imports = (("vllm_omni_errors.seams", "request_error"),)
    new = 'except Exception as e:\n    raise request_error(e, parameter="lora") from e'
    before = """
        def choose(body):
            try:
                lora = parse_lora_request(body)
            except Exception as exc:
                logger.warning("no LoRA: %s", exc)
    """
    after = """
        from vllm_omni_errors.seams import request_error


        def choose(body):
            try:
                lora = parse_lora_request(body)
            except Exception as e:
                raise request_error(e, parameter="lora") from e
    """


class ChatLoraSeam(_ChatLora):
    """A LoRA that cannot be read was dropped, and the answer was made without it."""

    function = DIFFUSION_CHAT


class ImageLoraSeam(_ChatLora):
    """A LoRA that cannot be read was dropped, and the image was made without it."""

    function = PREPARE_IMAGE


class DiffusionChatNeedsMessages(_Requests, InsertStatements):
    """A conversation without a message was answered with an image of nothing."""

    module = CHAT
    function = DIFFUSION_CHAT
    before_assignment = "messages"
    imports = (("vllm.exceptions", "VLLMValidationError"),)
    new = """
        if not request.messages:
            raise VLLMValidationError("messages must not be empty.", parameter="messages")
    """
    before = """
        def answer(request):
            messages = []
            return messages
    """
    after = """
        from vllm.exceptions import VLLMValidationError


        def answer(request):
            if not request.messages:
                raise VLLMValidationError("messages must not be empty.", parameter="messages")
            messages = []
            return messages
    """


# ---- failures of one request in a stage -----------------------------------------------------------------------------


class _StageFailure(_Requests, ReplaceKeyword):
    """A stage that fails on a request and goes on is an engine failure with the stage's number, not a raw error."""

    module = "entrypoints/omni_base.py"
    callee = "raise_client_error_or"
    keyword = "fallback"
    imports = (("functools", "partial"), ("vllm_omni.errors", "OmniEngineGenerateError"))


class StageMessageNamesStage(_StageFailure):
    __doc__ = _StageFailure.__doc__
    function = "OmniBase._raise_nonfatal_error_message"
    value = "partial(OmniEngineGenerateError, stage_id=msg.stage_id)"
    before = """
        def fail(self, msg):
            raise_client_error_or(msg.error, fallback=RuntimeError)
    """
    after = """
        from functools import partial

        from vllm_omni.errors import OmniEngineGenerateError


        def fail(self, msg):
            raise_client_error_or(msg.error, fallback=partial(OmniEngineGenerateError, stage_id=msg.stage_id))
    """


class StageOutputNamesStage(_StageFailure):
    __doc__ = _StageFailure.__doc__
    function = "OmniBase._check_engine_output_error"
    value = "partial(OmniEngineGenerateError, stage_id=stage_id)"
    before = """
        def fail(self, text, stage_id):
            raise_client_error_or(text, fallback=EngineGenerateError)
    """
    after = """
        from functools import partial

        from vllm_omni.errors import OmniEngineGenerateError


        def fail(self, text, stage_id):
            raise_client_error_or(text, fallback=partial(OmniEngineGenerateError, stage_id=stage_id))
    """


# ---- the server's own output ----------------------------------------------------------------------------------------


class _NoImages(_Requests, InsertStatements):
    """An answer without an image was a success, with an empty list or a sentence in its place."""

    imports = (("vllm.exceptions", "VLLMServerError"),)
    new = """
        if not images:
            raise VLLMServerError("The model produced no image.")
    """
    before = """
        def extract(result):
            images = result.images
            flattened = []
            return flattened
    """
    after = """
        from vllm.exceptions import VLLMServerError


        def extract(result):
            images = result.images
            if not images:
                raise VLLMServerError("The model produced no image.")
            flattened = []
            return flattened
    """


class NoImagesInDirectResult(_NoImages):
    __doc__ = _NoImages.__doc__
    module = IMAGES
    function = "_extract_images_from_result"
    before_assignment = "flattened"


class NoImagesInMultiStageResult(_NoImages):
    __doc__ = _NoImages.__doc__
    module = CHAT
    function = GENERATE_IMAGES
    before_assignment = "stage_durations"
    before = _NoImages.before.replace("flattened", "stage_durations")
    after = _NoImages.after.replace("flattened", "stage_durations")


class NoImagesInChat(_NoImages):
    __doc__ = _NoImages.__doc__
    module = CHAT
    function = "OmniOpenAIServingChat._create_image_choice"
    before_assignment = "image_contents"
    before = _NoImages.before.replace("flattened", "image_contents")
    after = _NoImages.after.replace("flattened", "image_contents")


class NoImagesInDiffusionChat(NoImagesInChat):
    __doc__ = _NoImages.__doc__
    function = DIFFUSION_CHAT


# ---- what a route must know or check itself ------------------------------------------------------------------------


class DiffusionChatKnowsItsModel(_Requests, InsertStatements):
    """A diffusion-only server answered chat requests for any model, also for one that it does not have."""

    module = CHAT
    function = DIFFUSION_CHAT
    imports = (("vllm.exceptions", "VLLMNotFoundError"),)
    new = """
        if request.model and raw_request is not None:
            served = {path.name for path in raw_request.app.state.openai_serving_models.base_model_paths}
            if request.model not in served:
                raise VLLMNotFoundError(
                    f"The requested model does not exist; this server serves '{self._diffusion_model_name}'."
                )
    """
    before = '''
        class Chat:
            async def answer(self, request, raw_request):
                """Answer."""
                return await self.run(request)
    '''
    after = '''
        from vllm.exceptions import VLLMNotFoundError


        class Chat:
            async def answer(self, request, raw_request):
                """Answer."""
                if request.model and raw_request is not None:
                    served = {path.name for path in raw_request.app.state.openai_serving_models.base_model_paths}
                    if request.model not in served:
                        raise VLLMNotFoundError(
                            f"The requested model does not exist; this server serves '{self._diffusion_model_name}'."
                        )
                return await self.run(request)
    '''


class EditSeedFits(_Requests, InsertStatements):
    """A seed that does not fit the engine's messages was refused far from here, without the parameter's name."""

    module = API_SERVER
    function = "edit_images"
    before_assignment = "output_format"
    imports = (("vllm.exceptions", "VLLMValidationError"),)
    new = """
        if seed is not None and not -(2**63) <= seed < 2**64:
            raise VLLMValidationError("seed must fit in 64 bits.", parameter="seed")
    """
    before = """
        def edit(seed, output_format):
            output_format = choose(output_format)
            return run(seed, output_format)
    """
    after = """
        from vllm.exceptions import VLLMValidationError


        def edit(seed, output_format):
            if seed is not None and not -(2**63) <= seed < 2**64:
                raise VLLMValidationError("seed must fit in 64 bits.", parameter="seed")
            output_format = choose(output_format)
            return run(seed, output_format)
    """


class MissingHandlers(_Requests, InsertStatements):
    """vLLM's routes, tokenize among them, failed on a handler that a diffusion-only server does not have."""

    module = API_SERVER
    function = "omni_run_server_worker"
    after_call = "omni_init_app_state"
    imports = (("vllm_omni_errors.seams", "fill_missing_handlers"),)
    new = "fill_missing_handlers(app.state)"
    before = """
        async def serve(app):
            await omni_init_app_state(app.state)
            await listen(app)
    """
    after = """
        from vllm_omni_errors.seams import fill_missing_handlers


        async def serve(app):
            await omni_init_app_state(app.state)
            fill_missing_handlers(app.state)
            await listen(app)
    """


_KEEP_REQUEST_ID = """
    if raw_request is not None:
        raw_request.state.request_metadata = RequestResponseMetadata(request_id=request_id)
"""


class DiffusionChatRequestId(_Requests, InsertStatements):
    """Errors of a diffusion chat request carried no request id: the route did not know it."""

    module = CHAT
    function = DIFFUSION_CHAT
    after_assignment = "request_id"
    new = _KEEP_REQUEST_ID
    before = """
        async def answer(raw_request):
            request_id = new_id()
            return await run(request_id)
    """
    after = """
        async def answer(raw_request):
            request_id = new_id()
            if raw_request is not None:
                raw_request.state.request_metadata = RequestResponseMetadata(request_id=request_id)
            return await run(request_id)
    """


class ImageRequestId(_Requests, InsertStatements):
    """Errors of a multi-stage image request carried no request id: the route did not know it."""

    module = CHAT
    function = GENERATE_IMAGES
    before_assignment = "prepared"
    new = _KEEP_REQUEST_ID
    before = """
        async def generate(raw_request, request_id):
            prepared = prepare()
            return await run(prepared, request_id)
    """
    after = """
        async def generate(raw_request, request_id):
            if raw_request is not None:
                raw_request.state.request_metadata = RequestResponseMetadata(request_id=request_id)
            prepared = prepare()
            return await run(prepared, request_id)
    """


# ---- returned error responses ---------------------------------------------------------------------------------------


class _RaiseResponse(_Requests, RaiseReturnedError):
    before = """
        async def route():
            result = await run()
            if isinstance(result, ErrorResponse):
                return JSONResponse(result.model_dump(), status_code=result.error.code)
            return result
    """
    after = """
        from vllm_omni_errors.seams import response_error


        async def route():
            result = await run()
            if isinstance(result, ErrorResponse):
                raise response_error(result)
            return result
    """


class ChatRouteRaisesResponse(_RaiseResponse):
    """What an inherited helper returned as an error is rendered at the boundary, with its request id."""

    module = API_SERVER
    function = "create_chat_completion"


class BatchRouteRaisesResponse(_RaiseResponse):
    """What an inherited helper returned as an error is rendered at the boundary, with its request id."""

    module = API_SERVER
    function = "create_batch_chat_completion"


class GenerateImagesRaisesResponse(_RaiseResponse):
    """What the chat handler returned as an error is rendered at the boundary, with its request id."""

    module = API_SERVER
    function = "generate_images"


class EditImagesRaisesResponse(_RaiseResponse):
    """The route read an attribute that the response does not have, and every error became a 500."""

    module = API_SERVER
    function = "edit_images"


class ChatChecksRaise(_Requests, RaiseReturnedName):
    """Unknown models and rejected templates come from inherited checks that return a response."""

    module = CHAT
    function = CREATE_CHAT
    name = "error_check_ret"
    hits = 2
    before = """
        def check():
            error_check_ret = inherited()
            if error_check_ret is not None:
                return error_check_ret
            return None
    """
    after = """
        from vllm_omni_errors.seams import response_error


        def check():
            error_check_ret = inherited()
            if error_check_ret is not None:
                raise response_error(error_check_ret)
            return None
    """


class _DropChecks(_Requests, DropErrorChecks):
    module = CHAT
    before = """
        def use():
            prepared = helper()
            if isinstance(prepared, ErrorResponse):
                return prepared
            return prepared[0]
    """
    after = """
        def use():
            prepared = helper()
            return prepared[0]
    """


class ChatAudioFormatRaises(_DropChecks):
    """The check of the audio format raises."""

    function = CREATE_CHAT
    discard = "audio_format_check"


class DiffusionChatAudioFormatRaises(_DropChecks):
    """The check of the audio format raises."""

    function = DIFFUSION_CHAT


class ImagePreparationRaises(_DropChecks):
    """The preparation of an image request raises."""

    function = GENERATE_IMAGES


# ---- raise sites and returned responses, as reviewed ----------------------------------------------------------------

DECIDED: Mapping[str, tuple[str, ...]] = {
    API_SERVER: ("_validate_chat_completion_raw_body", "create_batch_chat_completion", "create_chat_completion",
                 "edit_images", "generate_images"),
    "entrypoints/openai/app_state.py": ("_get_engine_and_model",),
    BATCH: ("*",),
    "entrypoints/openai/diffusion.py": ("*",),
    SIZES: ("*",),
    IMAGES: ("*",),
    "entrypoints/openai/lora.py": ("*",),
    "entrypoints/openai/utils.py": ("parse_lora_request",),
    CHAT: ("*",),
}  # fmt: skip
"""Functions whose decided sites change: what the routes that are migrated call."""

REQUESTS: tuple[type[Rewrite], ...] = (
    StageMessageNamesStage,
    StageOutputNamesStage,
    ChatRoutePropagates,
    BatchRoutePropagates,
    GenerateImagesPropagates,
    EditImagesPropagates,
    EditLayersPropagate,
    EditSeedFits,
    MissingHandlers,
    ChatRouteRaisesResponse,
    BatchRouteRaisesResponse,
    GenerateImagesRaisesResponse,
    EditImagesRaisesResponse,
    InputImagesSeam,
    InputImagesDecode,
    LoraSeam,
    LoraJsonSeam,
    ChatDiffusionArgumentsSeam,
    ChatPreprocessingSeam,
    ChatParametersSeam,
    InputProcessorSeam,
    TextTravels,
    ChatAdaptersSeam,
    StageParametersSeam,
    StageParametersAreAList,
    ChatPromptErrorsTravel,
    ChatChecksRaise,
    ChatAnswerPropagates,
    ChatCollectionPropagates,
    ChatLayersPropagate,
    ChatReferenceImagesSeam,
    ChatLoraSeam,
    DiffusionChatPropagates,
    DiffusionChatKnowsItsModel,
    DiffusionChatRequestId,
    ImageRequestId,
    NoImagesInDirectResult,
    NoImagesInMultiStageResult,
    NoImagesInChat,
    NoImagesInDiffusionChat,
    ChatAudioFormatRaises,
    DiffusionChatAudioFormatRaises,
    ImagePreparationRaises,
    ChatReferenceImagesDecode,
    ImageReferencesSeam,
    ImageReferencesDecode,
    ChatDataUriSeam,
    ChatSizeSeam,
    ChatSidesSeam,
    ImageLoraSeam,
    DiffusionChatNeedsMessages,
)
