# SPDX-License-Identifier: Apache-2.0
"""``python -m vllm_omni_rig.shared serve …``: vLLM-Omni's own command, for several API processes.

Each of them asks for its pipeline before it loads the plugins that would register it (``api_server.py:520``). So this
module, which every process that is spawned imports first, does it there.
"""

from vllm_omni_rig.plugin import register_pipelines

if __name__ == "__main__":
    from vllm_omni.entrypoints.cli.main import main

    main()
else:
    register_pipelines()
