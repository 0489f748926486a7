# SPDX-License-Identifier: Apache-2.0
"""Exception → record → public object, against upstream's ``create_error_response(...).model_dump()``."""

from collections.abc import Iterator

from vllm_omni_errors import convert, upstream
from vllm_omni_errors.transports import envelope

from .measure import Result, medians
from .sanitizer import MESSAGE, WITH_A_MODEL_ID

MESSAGES = {"a plain message": MESSAGE, "a message with a model id": WITH_A_MODEL_ID}


def run() -> Iterator[Result]:
    """Yield every line of the subject."""
    render = upstream.original("create_error_response")
    for name, message in MESSAGES.items():
        exc = upstream.VLLMValidationError(message, parameter="max_tokens")

        def ours(exc: Exception = exc) -> object:
            return envelope.body(convert.to_details(exc, request_id="chatcmpl-9a0b1c2d3e4f5a6b"))

        def theirs(exc: Exception = exc) -> object:
            return render(exc).model_dump()

        found = medians({"ours": ours, "theirs": theirs})
        yield Result("conversion", f"to_details and render, {name}", found["ours"], "µs", 15)
        yield Result("conversion", f"ours / upstream's, {name}", found["ours"] / found["theirs"], "×", 1.0)
