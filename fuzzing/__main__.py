# SPDX-License-Identifier: Apache-2.0
"""python -m fuzzing TARGET SECONDS: coverage-guided search for bytes that break a promise of `targets`.

Starts from the committed corpus; what it learns, and what broke a promise, is kept under ``build/fuzzing``. Exit code
0, or that of libFuzzer when something broke.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris

Target = Callable[[bytes], None]

HERE = Path(__file__).parent
BUILD = HERE.parent / "build" / "fuzzing"
MOST_BYTES = {"ledger": 4_096, "public_text": 2_500, "wire": 20_000}
INSTRUMENTED = ["vllm_omni_errors", "tomllib", "json"]
TIMEOUT_S = 10
MEMORY_MB = 2_048


def dictionary(target: str) -> list[str]:
    """Words that chance alone would hardly write."""
    from vllm_omni_errors import public_text
    from vllm_omni_errors.audit import ledger, vocabulary
    from vllm_omni_errors.details import OmniErrorDetails

    if target == "public_text":
        hints = [hint for rule in public_text.RULES for hint in rule.hints]
        return [*hints, *public_text._KEY_PREFIXES.split(), "|", "<redacted>", "<path>", "<data>", "<object>", "\u202e"]
    if target == "ledger":
        spelled = (
            "\\u2028",
            "\\ud800",
            "T00:00:00Z",
            "[" * 60,
            "{" * 60,
            '{"a":' * 12,
            "[[rule]]",
            '"format"',
            '"module"',
        )
        return [*ledger.ORDER, *vocabulary.DECISIONS, *vocabulary.KINDS, *spelled]
    return ["error", "error_details", *OmniErrorDetails.__dataclass_fields__, "BadRequestError", "client", "server"]


def seeing_rules(target: Target) -> Target:
    """The target, with a branch for every rule of the sanitizer: `re` is not instrumented, and which of the rules
    matched would not show."""
    from vllm_omni_errors.public_text import RULES

    source = "lambda text: 1 if search(text) else 0"
    looks = [atheris.instrument_func(eval(source, {"search": rule.pattern.search})) for rule in RULES]

    def run(data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        for look in looks:
            look(text)
        target(data)

    return run


def main(target: str, seconds: str) -> None:
    """Run one target. Does not return: libFuzzer ends the process."""
    atheris.enabled_hooks.add("str")
    with atheris.instrument_imports(include=INSTRUMENTED):
        from .targets import TARGETS

        words = dictionary(target)
        run = TARGETS[target]
        if target == "public_text":
            run = seeing_rules(run)
    learned = BUILD / target
    learned.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".dict", delete=False) as file:
        file.writelines('"' + "".join(f"\\x{byte:02x}" for byte in word.encode()) + '"\n' for word in words)
    options = [
        f"-dict={file.name}",
        f"-max_total_time={int(seconds)}",
        f"-max_len={MOST_BYTES[target]}",
        f"-timeout={TIMEOUT_S}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-artifact_prefix={learned}-broken-",
        "-len_control=10",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *options, str(learned), str(HERE / "corpus" / target)], run)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
