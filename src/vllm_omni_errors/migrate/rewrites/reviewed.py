# SPDX-License-Identifier: Apache-2.0
"""The routes that do without upstream's mapping of raw exceptions: what every area names as ``REVIEWED``, together."""

from typing import ClassVar

from vllm_omni_errors.migrate.rewrite import Phase
from vllm_omni_errors.migrate.rewrites import control, requests, sockets, speech, streams, videos
from vllm_omni_errors.migrate.rewrites.shapes import AddArgument

_AREAS = (requests, speech, videos, control, streams, sockets)
ROUTES = tuple(sorted({name for area in _AREAS for name in area.REVIEWED}))
"""Names of endpoint functions."""


class ReviewedRoutes(AddArgument):
    """On routes whose own errors are all typed, a raw exception is an unknown failure of the server, 500."""

    phase: ClassVar[Phase] = "requests"
    module = "entrypoints/serve/utils/errors.py"
    function = "_register_omni_exception_handlers"
    callee = "install"
    argument = f"reviewed=({', '.join(repr(name) for name in ROUTES)},)"
    before = """
        def register(app):
            install(app)
    """
    listed = "\n".join(f'                    "{name}",' for name in ROUTES)
    after = f"""
        def register(app):
            install(
                app,
                reviewed=(
{listed}
                ),
            )
    """
