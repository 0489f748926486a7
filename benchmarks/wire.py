# SPDX-License-Identifier: Apache-2.0
"""The wire against bare msgspec on the same frozen dataclass."""

from collections.abc import Iterator

import msgspec

from vllm_omni_errors import wire
from vllm_omni_errors.details import OmniErrorDetails

from .measure import Result, medians
from .sanitizer import MESSAGE

DETAILS = OmniErrorDetails(MESSAGE, "client", 400, "BadRequestError", "size", "chatcmpl-9a0b1c2d3e4f5a6b", 1)


def run() -> Iterator[Result]:
    """Yield every line of the subject."""
    encoder, decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(OmniErrorDetails)
    found = medians(
        {
            "ours": lambda: wire.decode(wire.encode(DETAILS)),
            "bare": lambda: decoder.decode(encoder.encode(DETAILS)),
        }
    )
    yield Result("wire", "encode and decode", found["ours"], "µs")
    yield Result("wire", "encode and decode, ours / bare msgspec", found["ours"] / found["bare"], "×", 1.2)
