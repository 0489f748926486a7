# SPDX-License-Identifier: Apache-2.0
"""Background jobs: the error of a failed job is made once, stored, and never derived again (contract, section 6)."""

import logging
from dataclasses import replace
from typing import Self

from pydantic import BaseModel, Field

from vllm_omni_errors import convert, metrics, tracing

from . import envelope

logger = logging.getLogger("vllm_omni_errors")


class JobError(BaseModel):
    """The public error object (contract, section 2) of a failed job, as it is stored with the job."""

    message: str = Field(description="What went wrong, for a human.")
    type: str = Field(description="Type of the error.")
    param: str | None = Field(default=None, description="The request's parameter at fault, if the client's request is.")
    code: int = Field(description="HTTP status of the error.")
    request_id: str | None = Field(default=None, description="Id of the request that failed.")
    error_stage_id: int | None = Field(default=None, description="Number of the stage that failed, if it is known.")

    @classmethod
    def of(cls, exc: Exception, *, request_id: str) -> Self:
        """The error of a job that ended with this exception; logs and counts it, since no route will.

        A client's error is one INFO line, a server's error has its traceback.
        """
        details = convert.to_details(exc, request_id=request_id)
        metrics.count_error(details, "job")
        tracing.mark_span(details)
        logger.log(
            logging.INFO if details.category == "client" else logging.ERROR,
            "job %s: %s %s: %s (stage_id=%s)",
            request_id,
            details.status_code,
            details.error_type,
            details.message,
            details.stage_id,
            exc_info=exc if details.category == "server" else None,
        )
        return cls(**envelope.error_object(details))

    def to_exception(self) -> Exception:
        """For a request that needs what the job did not make. It is ``permanent``, since the job stays failed."""
        details = convert.worded(self.message, self.type, self.code, self.param)
        exc = convert.to_exception(replace(details, request_id=self.request_id, stage_id=self.error_stage_id))
        exc.permanent = True  # type: ignore[attr-defined]
        return exc
