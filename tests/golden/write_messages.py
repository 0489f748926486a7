# SPDX-License-Identifier: Apache-2.0
"""Write the golden messages: the bytes of stage error messages, as each writer of them puts them on the wire.

    python tests/golden/write_messages.py [--stock] [DIRECTORY]

``--stock`` writes those of the installed vLLM-Omni, with its own encoder, in the shapes of its own code; that needs
0.30.0. Without it, ours are written. A file is ``WRITER/CASE.msgpack``; its bytes do not change once they are released.
"""

import sys
from pathlib import Path
from typing import Any

import msgspec

from vllm_omni_errors import wire
from vllm_omni_errors.details import OmniErrorDetails

HERE = Path(__file__).parent
STOCK = "vllm-omni-0.30.0"
REQUEST_ID = "chatcmpl-0123456789abcdef"
REFUSAL = "The prompt was rejected by the guardrail."
PRIVATE = "CUDA error at /srv/models/flux/transformer.py:12 with token hf_abcdefghijklmnopqrstuvwxyz012345"

RECORDS = {
    "guardrail": OmniErrorDetails(REFUSAL, "client", 400, "GuardrailViolationError", request_id=REQUEST_ID, stage_id=1),
    "validation": OmniErrorDetails(
        "size must be 256x256 or larger.", "client", 400, "BadRequestError", "size", REQUEST_ID, 1
    ),
    "failure": OmniErrorDetails(
        "Stage 1 failed to process the request.",
        "server",
        500,
        "InternalServerError",
        request_id=REQUEST_ID,
        stage_id=1,
    ),
    "unavailable": OmniErrorDetails(
        "Stage 1 has no live replica.", "server", 503, "ServiceUnavailableError", request_id=REQUEST_ID, stage_id=1
    ),
    "dead": OmniErrorDetails(
        "Stage 1 stopped working and cannot process the request.",
        "server",
        500,
        "InternalServerError",
        request_id=REQUEST_ID,
        stage_id=1,
        fatal=True,
    ),
}


def our_messages() -> dict[str, bytes]:
    """What we write: in the compatibility window, after it, and as a later version might, with more keys."""
    files = {}
    for case, record in RECORDS.items():
        fields = wire.to_fields(record)
        alone = {wire.RECORD_FIELD: fields[wire.RECORD_FIELD]}
        later = {wire.RECORD_FIELD: {**alone[wire.RECORD_FIELD], "retry_after_s": 3, "causes": [{"stage_id": 0}]}}
        files[f"record-and-flat/{case}"] = _message(fields)
        files[f"record-alone/{case}"] = _message(alone)
        files[f"record-with-more/{case}"] = _message(later)
    return files


def _message(fields: dict[str, Any]) -> bytes:
    """As ``vllm_omni/diffusion/stage_diffusion_proc.py:415`` sends an error, with our fields."""
    return msgspec.msgpack.encode({"type": "error", **fields, "request_id": REQUEST_ID, "metrics": {}})


def stock_messages() -> dict[str, bytes]:
    """What vLLM-Omni 0.30.0 writes: of an error ``diffusion/stage_diffusion_proc.py:415``, of an RPC's error ``:504``,
    and an output that is an error."""
    from vllm_omni.distributed.omni_connectors.utils.serialization import OmniMsgpackEncoder
    from vllm_omni.errors import GuardrailViolationError, client_error_metadata
    from vllm_omni.outputs import OmniRequestOutput

    encode = OmniMsgpackEncoder().encode
    files = {}
    for case, exc in {"guardrail": GuardrailViolationError(REFUSAL), "failure": RuntimeError(PRIVATE)}.items():
        status, error_type = client_error_metadata(exc)
        files[f"{STOCK}/{case}"] = encode(
            {
                "type": "error",
                "request_id": REQUEST_ID,
                "error": str(exc),
                "status_code": status,
                "error_type": error_type,
                "metrics": {},
            }
        )
        output = OmniRequestOutput.from_error(REQUEST_ID, str(exc), status_code=status, error_type=error_type)
        files[f"{STOCK}/output-{case}"] = encode(output)
    files[f"{STOCK}/rpc-failure"] = encode({"type": "error", "rpc_id": "rpc-1", "error": PRIVATE})
    return files


def main(arguments: list[str]) -> None:
    stock = "--stock" in arguments
    directory = next((Path(each) for each in arguments if not each.startswith("--")), HERE)
    for name, data in (stock_messages() if stock else our_messages()).items():
        path = directory / f"{name}.msgpack"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    main(sys.argv[1:])
