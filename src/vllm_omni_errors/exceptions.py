# SPDX-License-Identifier: Apache-2.0
"""The types that vLLM-Omni adds to vLLM's hierarchy (RFC, section 1).

Every one has ``message``, ``stage_id`` (alias ``error_stage_id``: the name on the wire and in the public object) and
``details``: the record that it was made from, or None. Every one can be copied and pickled: its constructor takes the
message alone, and everything else is in its ``__dict__``. Nothing is a default of the class: what Ray raises is an
instance of the class that asks the original for every attribute which it does not find.
"""

from http import HTTPStatus

from .details import OmniErrorDetails
from .upstream import EngineDeadError, EngineGenerateError, VLLMClientError, VLLMServerError


class _OmniError(Exception):
    """What the Omni types share."""

    details: OmniErrorDetails | None
    stage_id: int | None
    message: str

    def __init__(self, message: str = "", *, stage_id: int | None = None) -> None:
        # Not super(): upstream's EngineDeadError puts its own text before ours, once more at every copy.
        Exception.__init__(self, message)
        self.message = message
        self.stage_id = stage_id
        self.details = None

    @property
    def error_stage_id(self) -> int | None:
        """The stage where it happened."""
        return self.stage_id

    @error_stage_id.setter
    def error_stage_id(self, stage_id: int | None) -> None:
        self.stage_id = stage_id


class OmniClientError(_OmniError, VLLMClientError):
    """A client error that names its own 4xx status and type: vLLM-Omni's older raise sites, and remote errors.

    Up to vLLM-Omni 0.30 it was a ``ValueError``: catch ``VLLMClientError`` now.
    """

    def __init__(
        self,
        message: str = "",
        *,
        status_code: int = HTTPStatus.BAD_REQUEST,
        error_type: str = "BadRequestError",
        parameter: str | None = None,
        stage_id: int | None = None,
    ) -> None:
        super().__init__(message, stage_id=stage_id)
        self.status_code = int(status_code)
        self.error_type = error_type
        self.parameter = parameter


class OmniServerError(_OmniError, VLLMServerError):
    """A server error that names its own 5xx status and type: the mirror of :class:`OmniClientError`."""

    def __init__(
        self,
        message: str = "",
        *,
        status_code: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        error_type: str = "InternalServerError",
        parameter: str | None = None,
        stage_id: int | None = None,
    ) -> None:
        super().__init__(message, stage_id=stage_id)
        self.status_code = int(status_code)
        self.error_type = error_type
        self.parameter = parameter


class GuardrailViolationError(OmniClientError):
    """A guardrail rejects the request's content. 400."""

    def __init__(
        self,
        message: str = "",
        *,
        status_code: int = HTTPStatus.BAD_REQUEST,
        error_type: str = "GuardrailViolationError",
        stage_id: int | None = None,
    ) -> None:
        super().__init__(message, status_code=status_code, error_type=error_type, stage_id=stage_id)


class OmniConflictError(_OmniError, VLLMClientError):
    """An existing job is in a state in which the operation is impossible. 409."""


class OmniNotImplementedError(_OmniError, VLLMServerError):
    """This server does not implement the operation. 501."""


class OmniServiceUnavailableError(_OmniError, VLLMServerError):
    """A handler, pipeline or stage that the request needs is not available. 503.

    ``permanent`` says that this server will never have it, so that no client tries again; it stays in this process.
    """

    def __init__(self, message: str = "", *, permanent: bool = False, stage_id: int | None = None) -> None:
        super().__init__(message, stage_id=stage_id)
        self.permanent = permanent


class OmniStageTimeoutError(_OmniError, VLLMServerError):
    """Our own deadline for a stage or a generation expired. 504."""


class OmniEngineGenerateError(_OmniError, EngineGenerateError):
    """A stage failed on one request, and goes on. 500."""


class OmniEngineDeadError(_OmniError, EngineDeadError):
    """The stage that served the request is gone. 500, fatal.

    The constructor is the one of ``vllm_omni/entrypoints/omni_base.py:52``.
    """

    DEFAULT_MESSAGE = "The engine is dead; its log has the root cause."

    def __init__(
        self,
        message: str | None = None,
        *,
        stage_id: int | None = None,
        error_stage_id: int | None = None,
        suppress_context: bool = False,
    ) -> None:
        super().__init__(message or self.DEFAULT_MESSAGE, stage_id=error_stage_id if stage_id is None else stage_id)
        self.__suppress_context__ = suppress_context
