# SPDX-License-Identifier: Apache-2.0
"""Where commands print for people."""

from rich.console import Console


class PipedConsole(Console):
    """A console that raises BrokenPipeError when its reader went away; rich exits with 1, which is for findings."""

    def on_broken_pipe(self) -> None:
        """Let whoever runs the command end it."""
        raise BrokenPipeError
