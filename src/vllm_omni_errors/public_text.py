# SPDX-License-Identifier: Apache-2.0
"""Text that may leave the process: bounded first, then redacted, in time linear in what is left (contract, section 3).

This is a net. The first line of defence is that untyped text is never public.
"""

import itertools
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

MAX_CHARACTERS = 2_000
MAX_IDENTIFIER_CHARACTERS = 128
MAX_REQUEST_ID_CHARACTERS = 128
MAX_PASSES = 8
CUT = "..."
DATA, LOCATION, OBJECT, SECRET = "<data>", "<path>", "<object>", "<redacted>"

_PRINTABLE_ASCII = "".join(map(chr, range(0x21, 0x7F)))
_SPACES = re.compile(r"[\t\n\v\f\r]+ *")
# C0 and C1 controls, line separators, directions that reorder what a reader sees, and lone surrogates.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of text that is never public.

    ``hints`` are lower-case substrings without one of which ``pattern`` cannot match; they keep ordinary text cheap.
    Every pattern starts at an anchor that cannot recur inside its own match, or is bounded, so that it is linear.
    """

    kind: str
    hints: Collection[str]
    pattern: re.Pattern[str]
    replacement: str | Callable[[re.Match[str]], str]


def words(text: str) -> frozenset[str]:
    """The words of a text that is a table."""
    return frozenset(text.split())


# --- locations: one scan, so that a URL is never read as a path ---------------------------------------------------

_READABLE_SCHEMES = {"http", "https", "ws", "wss"}
_API_ROOTS = words(
    "abort_requests api classify cohere collective_rpc detokenize docs embed fault_tolerance finish_weight_update "
    "generative_scoring get_world_size health inference init_weight_transfer_engine invocations is_paused "
    "is_scaling_elastic_ep is_sleeping load metrics openai openapi.json pause ping pooling ready readyz realtime redoc "
    "rerank reset_encoder_cache reset_mm_cache reset_prefix_cache resume scale_elastic_ep score server_info sleep "
    "start_draft_weight_update start_profile start_weight_update stop_profile tokenize tokenizer_info "
    "update_weight_version update_weights version wake_up weight_info"
)
_SYSTEM_ROOTS = words(
    "app applications bin boot content data dev etc home lib lib32 lib64 library media mnt nix opt private proc root "
    "run sbin scratch snap srv storage sys system tmp users usr var volumes windows workspace"
)
_INNER_DIRECTORIES = {".cache", "blobs", "dist-packages", "node_modules", "site-packages", "snapshots"}
_API_VERSION = re.compile(r"v\d{1,2}(?:alpha|beta)?\d{0,2}\Z")
_FILE = re.compile(
    r".\.(?:7z|arrow|avi|bak|bash|bin|bmp|bz2|c|cc|cer|cfg|ckpt|conf|cpp|crt|csv|cu|cuh|db|dll|docx?|env|exe|flac|gguf|gif|"
    r"go|gz|h|h5|hpp|html?|ini|java|jinja2?|jpe?g|js|jsonl?|key|lock|log|m4a|md|mkv|mov|mp3|mp4|npy|npz|ogg|onnx|p12|"
    r"parquet|pdf|pem|pid|pickle|pkl|png|pth?|pyc?|pyi|rs|safetensors|sh|so(?:\.\d+)*|sock|sqlite3?|svg|tar|tiff?|tmp|"
    r"toml|ts|tsv|txt|wav|webm|webp|whl|xlsx?|xml|xz|ya?ml|zip)\Z",
    re.IGNORECASE,
)
_LOCATION_PATTERN = re.compile(
    r"(?P<url>(?<![A-Za-z0-9+.-])(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,20})://(?P<rest>[^\s'\"`<>]*))"
    r"|(?P<drive>(?<![A-Za-z0-9])[A-Za-z]:[\\/](?!/)(?:[^\s'\"`<>|]|[ ](?=[^\s'\"`<>|\\]{0,64}\\))*)"
    r"|(?P<share>\\\\[A-Za-z0-9_.$-]+\\[^\s'\"`<>|]*)"
    r"|(?P<quoted>(?<=['\"`])(?:~?/|\.\.?/)[^'\"`<>\n]{1,400}(?=['\"`]))"
    r"|(?P<slashed>(?<![A-Za-z0-9_.~@+%#$&*!?\\/-])[A-Za-z0-9_.~@+%#$&*!?-]*[\\/][A-Za-z0-9_.~@+%#$&*!?\\/-]*)"
)


def _location(match: re.Match[str]) -> str:
    text = match[0]
    if match["url"]:
        return _url(match["scheme"], match["rest"], text)
    if match["quoted"] or match["slashed"]:
        stem = text.rstrip(".!?")
        return LOCATION + text[len(stem) :] if _is_file_path(stem) else text
    return LOCATION


def _url(scheme: str, rest: str, text: str) -> str:
    """A web URL without its credentials and its query; any other URL is a location."""
    if not rest:
        return text
    if scheme.lower() not in _READABLE_SCHEMES:
        return LOCATION
    address, mark, query = _partition(rest)
    authority, slash, path = address.partition("/")
    hidden = SECRET if query else ""
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}{mark}{hidden}"


def _partition(rest: str) -> tuple[str, str, str]:
    for index, character in enumerate(rest):
        if character in "?#":
            return rest[:index], character, rest[index + 1 :]
    return rest, "", ""


def _is_file_path(text: str) -> bool:
    """Tell a path of a file system from an API path, a model id, a media type or a fraction."""
    segments = text.replace("\\", "/").split("/")
    named = [segment for segment in segments if segment.strip(".")]
    if not named:
        return False
    first, last = named[0].lower(), named[-1]
    if segments[0] in (".", "..", "~") or (segments[0].startswith("~") and len(named) > 1) or ".." in segments:
        return True
    if segments[0]:  # relative
        inside = not _INNER_DIRECTORIES.isdisjoint(named) or (first in _SYSTEM_ROOTS and len(named) > 2)
        return inside or bool(_FILE.search(last))
    if "\\" in text:
        return len(named) > 1 or bool(_FILE.search(last))
    if first in _API_ROOTS or _API_VERSION.match(first):
        return False
    return len(named) > 1 or bool(_FILE.search(last))


# --- secrets and dumps ------------------------------------------------------------------------------------------

_HEXADECIMAL = re.compile(r"[0-9a-fA-F]{32,}\Z")
_ALPHANUMERIC = re.compile(r"[A-Za-z0-9]+")
MIN_RANDOM_CHARACTERS = 20
MIN_CHANGES = 0.35


def _run(match: re.Match[str]) -> str:
    """A long run of base64 or hexadecimal digits; a long name made of words stays."""
    run = match[0]
    if len(run) > MAX_IDENTIFIER_CHARACTERS:
        return DATA
    for part in _ALPHANUMERIC.findall(run):
        if _HEXADECIMAL.match(part) or (len(part) >= MIN_RANDOM_CHARACTERS and _is_random(part)):
            return DATA
    return run


def _is_random(text: str) -> bool:
    """Digits, capitals and small letters mixed, with many changes between them: not a word, not CamelCase."""
    kinds = ["0" if c.isdigit() else "A" if c.isupper() else "a" for c in text]
    changes = sum(a != b for a, b in itertools.pairwise(kinds))
    return len(set(kinds)) == 3 and changes >= MIN_CHANGES * len(text)


_STRONG = (
    r"(?:pass(?:word|wd|phrase)|(?<![a-z])pwd|secret|api[_-]?key|access[_-]?key|private[_-]?key|credentials?|cookie)"
)
_WEAK = r"(?:token|authorization|signature|session[_-]?id)"
_SECRET_WORDS = words("pass pwd secret key credential cookie token authorization signature session")

RULES: tuple[Rule, ...] = (
    Rule(
        "rejected value",
        ("value=",),
        re.compile(r" ?\((?:parameter=[^,()\n]{0,200}, )?value=[\s\S]*"),
        "",
    ),
    Rule("rejected parameter", ("(parameter=",), re.compile(r" ?\(parameter=[^,()\n]{0,200}\)"), ""),
    Rule(
        "traceback",
        ("traceback (",),
        re.compile(r"Traceback \((?:most recent call last|innermost last)[\s\S]*"),
        SECRET,
    ),
    Rule("traceback line", ('file "',), re.compile(r'File "[^"\n]{0,500}"?, line \d+(?:, in \S{1,200})?'), LOCATION),
    Rule(
        "PEM block",
        ("-----begin",),
        re.compile(r"-----BEGIN (?:(?!-----END)[\s\S])*(?:-----END[^-]{0,60}-----)?"),
        SECRET,
    ),
    Rule(
        "data URI",
        ("data:",),
        re.compile(r"data:(?=[\w.+-]{1,40}/|;)[\w.+/-]{0,100}(?:;[\w=.+-]{1,60}){0,5},[^\s'\"<>)]*", re.IGNORECASE),
        DATA,
    ),
    Rule(
        "named secret",
        _SECRET_WORDS,
        re.compile(rf"(?i)({_STRONG}[\"']?=[\"']?|{_STRONG}[\"']?:\s?[\"'])(?!<redacted>)[^\s,;'\"]+"),
        rf"\1{SECRET}",
    ),
    Rule(
        "named secret",
        _SECRET_WORDS,
        re.compile(
            rf"(?i)((?:{_STRONG}|{_WEAK})[\"']?\s?[:=]\s?[\"']?)(?!<redacted>)(?=[^\s,;'\"]{{0,100}}\d)[^\s,;'\"]{{6,}}"
        ),
        rf"\1{SECRET}",
    ),
    Rule(
        "authorization header",
        ("bearer ", "basic "),
        re.compile(r"(?i)\b(bearer|basic) (?=[\w.~+/=-]{0,100}[\d=_])[\w.~+/=-]{8,}"),
        rf"\1 {SECRET}",
    ),
    Rule("JSON web token", ("eyj",), re.compile(r"(?<![A-Za-z0-9_-])eyJ[\w-]{8,}(?:\.[\w-]{0,2000}){0,2}"), SECRET),
    Rule(
        "vendor key",
        words(
            "sk- sk_ pk_ rk_ hf_ ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- xox gsk_ nvapi- npm_ pypi- r8_ ya29. sg."
        ),
        re.compile(
            r"(?<![A-Za-z0-9])(?:sk-|[spr]k_(?:live|test)_|hf_|gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|gsk_|nvapi-|"
            r"npm_|pypi-|r8_|ya29\.|SG\.)(?:(?=[\w.-]{0,100}[A-Z0-9])[\w.-]{12,}|[a-z]{20,})"
        ),
        SECRET,
    ),
    Rule(
        "cloud key",
        ("akia", "asia", "aiza"),
        re.compile(r"(?<![A-Za-z0-9])(?:A[KS]IA[A-Z0-9]{12,}|AIza[\w-]{20,})"),
        SECRET,
    ),
    Rule(
        "tensor or array dump",
        ("tensor(", "array("),
        re.compile(r"\b(?:tensor|array)\((?=[\[\d-])[^)]*\)?"),
        DATA,
    ),
    Rule(
        "number dump",
        (",",),
        re.compile(r"(?<![\d.,eE+-])(?<!\d, )(?:[+-]?\d[\d.eE+-]{0,40}, ?){15,}[+-]?\d?[\d.eE+-]{0,40}"),
        DATA,
    ),
    Rule("object", (" at 0x",), re.compile(r"<[^<>\n]{1,300} at 0x[0-9a-fA-F]+>"), OBJECT),
    Rule(
        "object",
        ("<",),
        re.compile(
            r"<(?:(?:bound method|built-in|function|module|class|coroutine|generator|async_generator|"
            r"[A-Za-z_][\w.]{0,100} object)\b[^<>\n]|[A-Za-z_][\w.]{0,100}: )(?:[^<>\n]|<[a-z]{1,10}>){0,300}>"
        ),
        OBJECT,
    ),
    Rule("memory address", ("0x",), re.compile(r"\b0[xX][0-9a-fA-F]{6,}"), "<address>"),
    Rule("location", ("/", "\\"), _LOCATION_PATTERN, _location),
    Rule("long run", ("",), re.compile(r"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/=_-]{32,}"), _run),
)
"""In order: what contains others comes first."""


def sanitize(text: str) -> str:
    """Public form of a text: at most 2,000 characters, without secrets, paths, addresses, dumps and controls.

    Total (anything that is no string gives ""), idempotent, linear. A longer text is cut at a token's boundary before
    anything else, because half a key is not recognized as one. Model ids such as ``org/model-name``, API paths such as
    ``/v1/images/edits`` and web URLs without credentials stay readable.
    """
    if not isinstance(text, str):
        return ""
    text = shorten(text, MAX_CHARACTERS)
    for _ in range(MAX_PASSES):
        clean = _once(text)
        if clean == text:
            return clean
        text = clean
    return SECRET


def _once(text: str) -> str:
    lowered = text.lower()
    for rule in RULES:
        for hint in rule.hints:
            if hint in lowered:
                text = rule.pattern.sub(rule.replacement, text)
                break
    if not text.isprintable():
        text = _UNSAFE.sub(_escaped, _SPACES.sub(" ", text))
    return shorten(text.strip(), MAX_CHARACTERS)


def shorten(text: str, limit: int) -> str:
    """The text, cut at a token's boundary if it has more than ``limit`` characters. It is not sanitized."""
    # The class's own methods: a subclass of str may have replaced them.
    head = str.__getitem__(text, slice(0, limit + 1))
    if len(head) <= limit:
        return head
    whole = head[: limit - len(CUT) + 1].rstrip(_PRINTABLE_ASCII)[: limit - len(CUT)].rstrip()
    return (whole or DATA) + CUT


def _escaped(match: re.Match[str]) -> str:
    return f"<U+{ord(match[0]):04X}>"


def identifier(text: str | None) -> str | None:
    """Public form of a name such as a parameter's: sanitized, at most 128 characters; None if nothing is left."""
    if not isinstance(text, str):
        return None
    clean = sanitize(text)
    if len(clean) > MAX_IDENTIFIER_CHARACTERS:
        clean = clean[: MAX_IDENTIFIER_CHARACTERS - len(CUT)].rstrip() + CUT
    return clean or None


_NOT_IN_REQUEST_ID = re.compile(r"[^A-Za-z0-9._:-]")


def request_id(text: str | None) -> str | None:
    """A request id that is safe in headers, log lines and bodies: at most 128 letters, digits and ``._:-``."""
    if not isinstance(text, str):
        return None
    return _NOT_IN_REQUEST_ID.sub("", str.__getitem__(text, slice(0, MAX_REQUEST_ID_CHARACTERS))) or None
