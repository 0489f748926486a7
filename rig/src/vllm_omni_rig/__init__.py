# SPDX-License-Identifier: Apache-2.0
"""The real vLLM-Omni on a CPU, with no model download and faults on demand."""
