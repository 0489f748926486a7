# SPDX-License-Identifier: Apache-2.0
"""The command `omni-errors`. It never imports vLLM or torch, and what a command needs only when that command runs."""

import contextlib
import errno
import gc
import importlib
import json
import os
import shutil
import signal
import sys
import textwrap
import threading
import traceback
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from rich.console import Console


NEEDS_TOOLS = "this needs the tools extra: pip install '.[tools]' in a clone of vllm-omni-errors"
TOOLS = frozenset(
    {"aiolimiter", "click", "httpx", "httpx_sse", "jinja2", "junitparser", "libcst", "openai", "packaging", "PIL"}
    | {"prometheus_client", "rich", "ruff", "websockets"}
)
PIPED_WIDTH_COLUMNS = 400
UNWRITABLE = frozenset({errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC})
"""What a full disk, or another standard output that takes nothing, raises; files are named where they are written."""


class ExitCode(IntEnum):
    """Exit codes of every command."""

    OK = 0
    FINDINGS = 1  # the probe found failing checks, or the audit's gate is closed
    COULD_NOT_RUN = 2  # wrong usage, a source or server that cannot be used, a defect of ours
    INTERRUPTED = 130  # Ctrl-C
    READER_GONE = 141  # the reader of a pipe went away before everything was said
    TERMINATED = 143  # SIGTERM


try:
    import click
except ModuleNotFoundError as missing:
    if missing.name != "click":
        raise
    print(f"omni-errors: {NEEDS_TOOLS}", file=sys.stderr)
    raise SystemExit(ExitCode.COULD_NOT_RUN) from None


class CouldNotRun(click.ClickException):
    """Ends a command: the message goes to standard error, the exit code is COULD_NOT_RUN."""

    exit_code = int(ExitCode.COULD_NOT_RUN)

    def show(self, file: Any = None) -> None:
        """Print the message."""
        click.echo(f"omni-errors: {self.message}", file=file, err=file is None)


class ReaderGoneError(Exception):
    """Standard output was closed. Click and rich would exit with 1 then, which is the code for findings."""


class LazyGroup(click.Group):
    """A group whose further commands are imported when they are used: name, place, one line of help."""

    LAZY: dict[str, tuple[str, str, str]] = {  # noqa: RUF012 (click.Group is no place for ClassVar annotations)
        "audit": (
            "vllm_omni_errors.audit.command",
            "audit",
            "List every error site of a vLLM-Omni, and hold them against a reviewed ledger.",
        ),
        "probe": (
            "vllm_omni_errors.probe.command",
            "probe",
            "Check the error contract of a running server, from outside.",
        ),
    }

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise ReaderGoneError from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return sorted({*super().list_commands(ctx), *self.LAZY})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command if need be."""
        if cmd_name not in self.LAZY:
            return super().get_command(ctx, cmd_name)
        module, name, _ = self.LAZY[cmd_name]
        with needing_tools():
            try:
                found = getattr(importlib.import_module(module), name)
            except ModuleNotFoundError as error:
                if error.name is None or not module.startswith(error.name):
                    raise
                from importlib.metadata import version

                raise CouldNotRun(f"{cmd_name} is not part of this version ({version('vllm-omni-errors')})") from None
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        rows = []
        for name in self.list_commands(ctx):
            command = super().get_command(ctx, name)
            rows.append((name, command.get_short_help_str(80) if command else self.LAZY[name][2]))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@contextlib.contextmanager
def needing_tools() -> Iterator[None]:
    """Say in one sentence that the extra is missing, if that is why an import fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in TOOLS:
            raise CouldNotRun(NEEDS_TOOLS) from None
        raise


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 findings, 2 could not run, 130 interrupted.",
)
@click.version_option(package_name="vllm-omni-errors", prog_name="omni-errors")
def group() -> None:
    """Errors as one contract for vLLM-Omni: audit it, migrate it, and probe it.

    \b
    Examples:
      omni-errors probe http://127.0.0.1:8000 --html report.html
      omni-errors explain 503
      omni-errors migrate vllm-omni==0.30.0 --out migrated --diff migrated.diff
      omni-errors migrate vllm-omni==0.30.0 --out dist --wheel
      omni-errors migrate vllm-omni==0.30.0 --series series
      omni-errors audit ~/src/vllm-omni --html audit.html
    """


# migrate


@group.command()
@click.argument("source")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Directory to write to, made whole or not at all. One that an earlier run wrote is replaced.",
)
@click.option(
    "--series",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Instead of --out: write patches for `git am`, one for each phase and area; the first brings the library.",
)
@click.option(
    "--phase",
    metavar="PHASE",
    help="Last phase to apply: bridge, requests, stages, transports or finalize (default: all of them).",
)
@click.option(
    "--diff",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a unified diff too; it applies to the source with `git apply` or `patch -p1`.",
)
@click.option("--wheel", is_flag=True, help="Put a wheel into --out too (not from a checkout).")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="Write what was done, or what did not match, as JSON; - is standard output.",
)
def migrate(
    source: str,
    out: Path | None,
    series: Path | None,
    phase: str | None,
    diff: Path | None,
    wheel: bool,
    json_file: Path | None,
) -> None:
    """Write a migrated copy of a vLLM-Omni; the source is never changed.

    SOURCE is a checkout, a wheel file, or a requirement that pip downloads. If any rewrite does not find its place,
    nothing is written and all that did not match is listed. Running it on its own output changes nothing.

    \b
    Examples:
      omni-errors migrate vllm-omni==0.30.0 --out migrated
      omni-errors migrate ~/src/vllm-omni --out bridge --phase bridge
      omni-errors migrate vllm_omni-0.30.0-py3-none-any.whl --out dist --wheel
      omni-errors migrate vllm-omni==0.30.0 --series series
    """
    target, option = (out, "--out") if series is None else (series, "--series")
    if target is None or (series is not None and (out is not None or diff is not None or wheel)):
        raise click.UsageError("Give --out, with --diff and --wheel if you like, or --series alone.")
    _prepare_json(json_file, target, option)
    with needing_tools():
        from vllm_omni_errors.migrate import migrate as run
        from vllm_omni_errors.migrate import summary
        from vllm_omni_errors.migrate.series import write_series
        from vllm_omni_errors.migrate.source import MigrationError

        errors = _console(stderr=True)
        try:
            with _progress(errors) as progress:
                result: Any = (
                    run(source, target, phase=phase, diff=diff, wheel=wheel, progress=progress)
                    if series is None
                    else write_series(source, series, phase=phase, progress=progress)
                )
        except MigrationError as error:
            _write_json(json_file, summary.error_json(error))
            summary.show_unmatched(errors, error)
            raise CouldNotRun(f"{error.subject}: {error.reason}.\n{error.next_step}") from None
        to_stdout = json_file is not None and str(json_file) == "-"
        show = summary.show_result if series is None else summary.show_series
        show(errors if to_stdout else _console(), result)
    _write_json(json_file, result.to_json())


def _console(*, stderr: bool = False) -> "Console":
    from vllm_omni_errors.report.console import PipedConsole

    console = PipedConsole(stderr=stderr)
    if not console.is_terminal:
        console.width = max(console.width, PIPED_WIDTH_COLUMNS)
    return console


@contextlib.contextmanager
def _progress(console: "Console") -> Iterator[Any]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    words = {
        "patch": "Making patches",
        "read": "Reading the source",
        "rewrite": "Rewriting",
        "wheel": "Building the wheel",
        "write": "Writing",
    }
    text = TextColumn("{task.description:<20}")
    columns = (SpinnerColumn(), text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks: dict[str, Any] = {}

        def progress(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = bars.add_task(words.get(step, step), total=total)
            bars.update(tasks[step], completed=done, total=total)

        yield progress


def _prepare_json(path: Path | None, out: Path, option: str) -> None:
    if path is None or str(path) == "-":
        return
    if path.resolve().is_relative_to(out.resolve()):
        raise CouldNotRun(
            f"{path}: --json lies inside of {option}, which is replaced as a whole.\nChoose a file beside it."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CouldNotRun(f"{path}: cannot write: {error.strerror}.\nChoose another --json.") from None


def _write_json(path: Path | None, document: dict[str, Any]) -> None:
    if path is None:
        return
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    if str(path) == "-":
        click.echo(text, nl=False)
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CouldNotRun(f"{path}: cannot write: {error.strerror}.\nChoose another --json.") from None


@group.command(short_help="Say what an error means, whose it is, and what to look at.")
@click.argument("word", metavar="TYPE-OR-STATUS")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="Write it as JSON as well; - is standard output.",
)
def explain(word: str, json_file: Path | None) -> None:
    """Say what an error means: whose it is, whether to retry, where it comes from, what to look at.

    TYPE-OR-STATUS is an HTTP status, the `type` of an error object, or the name of an exception class.

    \b
    Examples:
      omni-errors explain 503
      omni-errors explain GuardrailViolationError
      omni-errors explain EngineDeadError --json -
    """
    from vllm_omni_errors import explain as explanations

    found = explanations.explain(word)
    if not found:
        near = explanations.alike(word)
        hint = f"Did you mean {' or '.join(near)}?" if near else "Give a status, a type or an exception class."
        raise CouldNotRun(f"{word}: no error of the contract is called so.\n{hint}")
    _write_json(json_file, {"errors": [explanations.fields(each) for each in found]})
    if str(json_file) == "-":
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPED_WIDTH_COLUMNS
    for each in found:
        click.secho(explanations.title(each), bold=True)
        for word, sentence in explanations.lines(each):
            click.echo(_beside(f"  {word + ':':<12}", sentence.replace("`", ""), width))
        click.echo()


def _beside(label: str, text: str, width: int) -> str:
    """A label and a text beside it, in lines of at most `width` columns."""
    return textwrap.fill(
        text,
        width,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )


# The way in


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with an `ExitCode`."""
    code = run(arguments)
    gc.freeze()  # else what an audit made is searched for cycles once more, a tenth of its time
    sys.exit(code)


def run(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code. A defect of ours is printed with its traceback, as COULD_NOT_RUN."""
    try:
        with _ending_on_sigterm():
            code = group.main(args=arguments, prog_name="omni-errors", standalone_mode=False)
            sys.stdout.flush()
        return code if isinstance(code, int) else int(ExitCode.OK)
    except click.exceptions.Abort:
        click.echo("omni-errors: interrupted; nothing half-written is left.", err=True)
        return int(ExitCode.INTERRUPTED)
    except click.ClickException as error:
        error.show()
        return int(ExitCode.COULD_NOT_RUN)
    except (ReaderGoneError, BrokenPipeError):
        _discard_output()
        return int(ExitCode.READER_GONE)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in UNWRITABLE and error.filename is None:
            _discard_output()
            click.echo(f"omni-errors: the output could not be written: {error.strerror}.", err=True)
            return int(ExitCode.COULD_NOT_RUN)
        traceback.print_exc()
        click.echo(
            "omni-errors: this is a defect of vllm-omni-errors; please report it with the lines above.", err=True
        )
        return int(ExitCode.COULD_NOT_RUN)


def _discard_output() -> None:
    """Let nothing of what is still to be written fail once more when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind the stack, so that nothing half-written is left."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _terminate(signal_number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(ExitCode.TERMINATED)


if __name__ == "__main__":
    main()
