# SPDX-License-Identifier: Apache-2.0
"""Phase `bridge`: the compatibility types get their semantic parents, the record gets a home, one handler renders."""

from vllm_omni_errors.migrate.rewrite import Rewrite
from vllm_omni_errors.migrate.rewrites.shapes import ExportNames, RemoveDefinitions, ReplaceBody, WidenClause

API_SERVER = "entrypoints/openai/api_server.py"
EXPORTED = (
    "GuardrailViolationError",
    "OmniClientError",
    "OmniConflictError",
    "OmniEngineDeadError",
    "OmniEngineGenerateError",
    "OmniErrorDetails",
    "OmniNotImplementedError",
    "OmniServerError",
    "OmniServiceUnavailableError",
    "OmniStageTimeoutError",
)


class SemanticParents(RemoveDefinitions):
    """The client error types become `VLLMClientError`s, so that a bare `except ValueError` no longer owns them."""

    phase = "bridge"
    module = "errors.py"
    names = ("OmniClientError", "GuardrailViolationError")
    hits = 2
    imports = tuple(("vllm_omni_errors", name) for name in EXPORTED)
    before = """
        class OmniClientError(ValueError):
            pass


        class GuardrailViolationError(OmniClientError):
            pass


        def is_guardrail(exc: OmniClientError) -> bool:
            return isinstance(exc, GuardrailViolationError)
    """
    after = """
        from vllm_omni_errors import (
            GuardrailViolationError,
            OmniClientError,
        )


        def is_guardrail(exc: OmniClientError) -> bool:
            return isinstance(exc, GuardrailViolationError)
    """


class ExportedTypes(ExportNames):
    """Everything that serving code raises or catches is imported from one module."""

    phase = "bridge"
    module = "errors.py"
    names = EXPORTED
    before = """
        def status_of(exc):
            return exc.status_code
    """
    after = """
        def status_of(exc):
            return exc.status_code


        __all__ = [
            "GuardrailViolationError",
            "OmniClientError",
            "OmniConflictError",
            "OmniEngineDeadError",
            "OmniEngineGenerateError",
            "OmniErrorDetails",
            "OmniNotImplementedError",
            "OmniServerError",
            "OmniServiceUnavailableError",
            "OmniStageTimeoutError",
        ]
    """


class OneDeadEngineError(RemoveDefinitions):
    """The dead-engine type of the offline and online clients is the library's, which the catalogue knows."""

    phase = "bridge"
    module = "entrypoints/omni_base.py"
    names = ("OmniEngineDeadError",)
    imports = (("vllm_omni.errors", "OmniEngineDeadError"),)
    before = """
        from vllm_omni.errors import raise_for_status


        class OmniEngineDeadError(EngineDeadError):
            pass


        def fail(status):
            raise_for_status(status)
            raise OmniEngineDeadError
    """
    after = """
        from vllm_omni.errors import OmniEngineDeadError, raise_for_status


        def fail(status):
            raise_for_status(status)
            raise OmniEngineDeadError
    """


class OneHandler(ReplaceBody):
    """Handlers added after `build_app` never run; the library reaches the stack that is already built."""

    phase = "bridge"
    module = "entrypoints/serve/utils/errors.py"
    function = "_register_omni_exception_handlers"
    shape = "de29db7563b6"
    imports = (("vllm_omni_errors", "install"),)
    body = "install(app)"
    before = '''
        def _register_omni_exception_handlers(app) -> None:
            """Register them."""
            app.exception_handler(KeyError)(print)
    '''
    after = '''
        from vllm_omni_errors import install


        def _register_omni_exception_handlers(app) -> None:
            """Register them."""
            install(app)
    '''


class _StillCaught(WidenClause):
    """Code that is not migrated yet and relied on `OmniClientError` being a `ValueError` catches it by name."""

    phase = "bridge"
    clause = ("ValueError",)
    added = "OmniClientError"
    imports = (("vllm_omni.errors", "OmniClientError"),)
    before = """
        def speak():
            try:
                return run()
            except KeyError:
                return None
            except ValueError as e:
                return str(e)
    """
    after = """
        from vllm_omni.errors import OmniClientError


        def speak():
            try:
                return run()
            except KeyError:
                return None
            except (ValueError, OmniClientError) as e:
                return str(e)
    """


_ENGINE = ("EngineGenerateError", "EngineDeadError")


class SpeechBatchStillCaught(_StillCaught):
    __doc__ = _StillCaught.__doc__
    module = API_SERVER
    function = "create_speech_batch"
    clauses = (_ENGINE, ("ValueError",), ("Exception",))


class DiffusionSpeechStillCaught(_StillCaught):
    __doc__ = _StillCaught.__doc__
    module = "entrypoints/openai/serving_speech.py"
    function = "OmniOpenAIServingSpeech._create_diffusion_speech"
    clauses = (("asyncio.CancelledError",), _ENGINE, ("ValueError",), ("Exception",))


class SpeechStillCaught(_StillCaught):
    __doc__ = _StillCaught.__doc__
    module = "entrypoints/openai/serving_speech.py"
    function = "OmniOpenAIServingSpeech.create_speech"
    clauses = (("asyncio.CancelledError",), _ENGINE, ("ValueError",), ("TTSGenerationError",), ("Exception",))


class AudioGenerateStillCaught(_StillCaught):
    __doc__ = _StillCaught.__doc__
    module = "entrypoints/openai/serving_audio_generate.py"
    function = "OmniOpenAIServingAudioGenerate.create_audio_generate"
    clauses = (("asyncio.CancelledError",), ("ValueError",), ("Exception",))


class RolloutStepStillCaught(_StillCaught):
    __doc__ = _StillCaught.__doc__
    module = "entrypoints/openai/serving_rl_rollout.py"
    function = "ServingRLRollout._run_step"
    clauses = (("ValueError",), ("Exception",))


BRIDGE: tuple[type[Rewrite], ...] = (
    SemanticParents,
    ExportedTypes,
    OneDeadEngineError,
    OneHandler,
    SpeechBatchStillCaught,
    DiffusionSpeechStillCaught,
    SpeechStillCaught,
    AudioGenerateStillCaught,
    RolloutStepStillCaught,
)
