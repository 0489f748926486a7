# SPDX-License-Identifier: Apache-2.0
"""One renderer per transport; they share the envelope and what is known about the current request, and nothing else."""
