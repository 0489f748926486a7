# SPDX-License-Identifier: Apache-2.0
"""The golden messages against the installed vLLM-Omni 0.30.0: it still writes its own, and it can read ours."""

from pathlib import Path
from typing import Any

import pytest
from golden import write_messages
from vllm_omni.distributed.omni_connectors.utils.serialization import OmniMsgpackDecoder
from vllm_omni.errors import OmniClientError, raise_client_error_or
from vllm_omni.outputs import OmniRequestOutput

from vllm_omni_errors import wire

GOLDEN = Path(write_messages.__file__).parent


def test_stock_still_writes_its_golden_messages() -> None:
    written = write_messages.stock_messages()
    assert {name: (GOLDEN / f"{name}.msgpack").read_bytes() for name in written} == written


@pytest.mark.parametrize("case", ["output-guardrail", "output-failure"])
def test_an_output_that_stock_decoded_is_read_by_its_attributes(case: str) -> None:
    data = (GOLDEN / write_messages.STOCK / f"{case}.msgpack").read_bytes()
    output = OmniMsgpackDecoder().decode(data)
    assert isinstance(output, OmniRequestOutput)
    details = wire.read(output)
    assert details is not None
    assert (details.category, details.request_id) == (
        "client" if case == "output-guardrail" else "server",
        write_messages.REQUEST_ID,
    )


@pytest.mark.parametrize("case", write_messages.RECORDS)
def test_stock_reads_our_messages_in_the_window(case: str) -> None:
    """As ``vllm_omni/diffusion/stage_diffusion_client.py:250`` does, and what ends the request: ``errors.py:63``."""
    record = write_messages.RECORDS[case]
    message: Any = OmniMsgpackDecoder().decode((GOLDEN / "record-and-flat" / f"{case}.msgpack").read_bytes())
    assert (message["type"], message["request_id"]) == ("error", write_messages.REQUEST_ID)
    with pytest.raises(OmniClientError if record.category == "client" else RuntimeError) as caught:
        raise_client_error_or(
            message["error"],
            status_code=message.get("status_code"),
            error_type=message.get("error_type"),
            fallback=RuntimeError,
        )
    assert str(caught.value) == record.message
    if isinstance(caught.value, OmniClientError):
        assert (caught.value.status_code, caught.value.error_type) == (record.status_code, record.error_type)
