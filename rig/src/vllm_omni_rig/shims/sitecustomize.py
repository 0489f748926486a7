# SPDX-License-Identifier: Apache-2.0
"""Run at the start of every Python process that the rig starts; ``vllm_omni_rig.environment`` is the place to read."""

import importlib.machinery
import importlib.util
import io
import os
import sys
from typing import cast

here = os.path.dirname(os.path.abspath(__file__))

if os.environ.get("VLLM_OMNI_RIG_ENVIRONMENT") == "1":
    from vllm_omni_rig.environment import activate

    activate()
    for stream in (sys.stdout, sys.stderr):  # whole lines: several processes write into one log
        cast(io.TextIOWrapper, stream).reconfigure(line_buffering=True)

# This file hides the environment's own sitecustomize, if there is one: run that too.
elsewhere = [entry for entry in sys.path if os.path.abspath(entry) != here]
spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
if spec is not None and spec.loader is not None:
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
