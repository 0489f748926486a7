# SPDX-License-Identifier: Apache-2.0
"""What the building blocks cost, as ratios within one run: ``python -m benchmarks [--json FILE]``."""
