# SPDX-License-Identifier: Apache-2.0
"""Coverage-guided searches for input that breaks a reader of what others wrote: `make fuzz`."""
