# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies for the record."""

from hypothesis import strategies as st

from vllm_omni_errors.details import OmniErrorDetails


def records() -> st.SearchStrategy[OmniErrorDetails]:
    return st.sampled_from(["client", "server"]).flatmap(
        lambda category: st.builds(
            OmniErrorDetails,
            message=st.text(max_size=80),
            category=st.just(category),
            status_code=st.integers(400, 499) if category == "client" else st.integers(500, 599),
            error_type=st.text(max_size=20) | st.sampled_from(["BadRequestError", "Not Found", "x" * 200]),
            parameter=st.none() | st.text(max_size=20),
            request_id=st.none() | st.text(max_size=20) | st.sampled_from(["chatcmpl-9a0b1c", "x" * 200]),
            stage_id=st.none() | st.integers(),
            fatal=st.just(False) if category == "client" else st.booleans(),
        )
    )
