# SPDX-License-Identifier: Apache-2.0
"""Text that may leave the process: bounded first, then redacted, in time linear in what is left (contract, section 3).

This is a net. The first line of defence is that untyped text is never public.
"""

import functools
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

MAX_CHARACTERS = 2_000
MAX_IDENTIFIER_CHARACTERS = 128
MAX_REQUEST_ID_CHARACTERS = 128
MAX_PASSES = 8
MAX_REDACTIONS = 32
MIN_KEY_CHARACTERS = 15
MIN_RUN_CHARACTERS = 32
CUT = "..."
DATA, LOCATION, OBJECT, SECRET = "<data>", "<path>", "<object>", "<redacted>"
_REDACTION = re.compile("<(?:data|path|object|redacted|address)>")

_PRINTABLE_ASCII = "".join(map(chr, range(0x21, 0x7F)))
_WHITE = " \t\n\v\f\r"
_SPACES = re.compile(r"[\t\n\v\f\r]+ *")
# C0 and C1 controls, line separators, directions that reorder what a reader sees, and lone surrogates.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of text that is never public.

    ``pattern`` cannot match a text without one of the characters in ``needs``, and one of the substrings in ``hints``
    if there are any, both in lower case. Where nothing is needed, a match has no space in it and at least
    :data:`MIN_KEY_CHARACTERS`. All that only keeps ordinary text cheap: a character is found some thirty times faster
    than a word, and a word than a match. Every pattern starts at an anchor that cannot recur inside its own match, or
    is bounded, so that it is linear.
    """

    kind: str
    needs: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    replacement: str | Callable[[re.Match[str]], str]


def words(text: str) -> frozenset[str]:
    """The words of a text that is a table."""
    return frozenset(text.split())


def _any(text: str) -> str:
    """The words of a text as alternatives of a pattern, by their first character: that rejects most places at once."""
    first: dict[str, list[str]] = {}
    for word in sorted(text.split(), key=lambda word: (-len(word), word)):
        first.setdefault(word[0], []).append(re.escape(word[1:]))
    return "|".join(f"{re.escape(letter)}(?:{'|'.join(rest)})" for letter, rest in first.items())


# Bytes that were read as text: controls other than line ends, and what a decoder puts where it gives up.
_BINARY = re.compile(
    "[\\x00-\\x08\\x0e-\\x1f\\x7f-\\x9f\\ufffd\\ud800-\\udfff]"
    "(?:[^ \\x00-\\x08\\x0e-\\x1f\\x7f-\\x9f\\ufffd\\ud800-\\udfff]{0,12}"
    "[\\x00-\\x08\\x0e-\\x1f\\x7f-\\x9f\\ufffd\\ud800-\\udfff]){5,}"
    "[^ ]*"
)

# --- secrets that have a name ------------------------------------------------------------------------------------

_STRONG = """
    password passwd passphrase pwd secret secret-key credential credentials cookie api-key access-key account-key
    private-key subscription-key
"""
_WEAK = "token authorization signature session-id encryption-key master-key shared-key signing-key"


def _in_any_case(text: str) -> str:
    """Alternatives for names in the usual cases: ``api-key`` also stands for ``API_KEY``, ``API-Key`` and ``apiKey``.

    Spelled out, because a pattern that ignores case cannot skip quickly to where a match may begin.
    """
    cased = (
        "-".join(parts)
        for word in text.split()
        for parts in itertools.product(*({part, part.upper(), part.title()} for part in word.split("-")))
    )
    return _any(" ".join(cased)).replace(r"\-", "[_-]?")


_NAMED_SECRET = re.compile(
    rf"""(?x)
    ( (?:{_in_any_case(_STRONG)}) ["']? (?: \s?=\s?["']? | \s?:\s?["'] ) )
    (?!<redacted>) [^\s,;'"]+
    """
)
_NAMED_TOKEN = re.compile(
    rf"""(?x)
    ( (?:{_in_any_case(_STRONG + _WEAK)}) ["']? (?: \s?[:=]\s? | \s(?:is|was)\s ) ["']? )
    (?!<redacted>) (?!(?i:bearer|basic|digest)\s) (?=[^\s,;'"]{{0,100}}\d) [^\s,;'"]{{6,}}
    """
)
_SECRET_HINTS = (
    "pass",
    "pwd",
    "secret",
    "key",
    "credential",
    "cookie",
    "token",
    "authorization",
    "signature",
    "session",
)

# --- secrets that show by their form: prefixes as the vendors document them ------------------------------------------

_KEY_PREFIXES = """
    sk- pk-lf- sk_live_ sk_test_ pk_live_ pk_test_ rk_live_ rk_test_ whsec_ sess- gsk_ nvapi- pplx- xai- r8_ fw_ jina_
    tvly- pcsk_ lsv2_ hf_ api_org_ dapi bce-v3/ csk-
    ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- glptt- gldt- glrt- glcbt- gloas- glsoat- glagent- glft- ATATT3x ATCTT3x
    ATBB xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xoxe. xapp- npm_ pypi- rubygems_ dckr_pat_ AKCp CFPAT-
    AIza ya29. GOCSPX- AKIA ASIA ABIA ACCA ABSK AKID LTAI dop_v1_ doo_v1_ dor_v1_ hvs. hvb. hvr. pul- dp.pt. dp.st.
    fm1_ fm2_ fo1_ HRKU- tskey- AGE-SECRET-KEY- EZAK EZTK ops_ pscale_ sbp_ sb_secret_
    SG. key- sq0atp- sq0csp- shpat_ shpca_ shppa_ shpss_ lin_api_ ntn_ secret_ PMAK- figd_ glc_ glsa_ NRAK- NRJS- NRII-
    sntrys_ sntryu_ phc_ phx_ rdme_ tfp_ duffel_ dnkey- sgp_ shippo_ xkeysib- xsmtpsib- EAAA MTQ pat-
"""
_KEY = re.compile(
    rf"""(?x)
    (?<![A-Za-z0-9])
    (?:
        (?:{_any(_KEY_PREFIXES)}) (?: (?=[\w.~-]{{0,100}}[A-Z0-9]) [\w.~/+=-]{{12,}} | [a-z]{{16,}} )
      | eyJ[\w-]{{12,}} (?: \.[\w-]{{0,2000}} ){{0,4}}
      | [MNO][\w-]{{22,27}} \. [\w-]{{6}} \. [\w-]{{25,}}
      | \d{{8,10}} : [\w-]{{35}}
      | (?:A[Cc]|S[Kk]) [0-9a-f]{{32}}
      | [0-9a-f]{{32}} -us\d{{1,2}}
    )
    """
)
_HEADER_KEY = re.compile(r"(?i)\b((?:bearer|basic|digest) )(?=[\w.~+/=-]{0,100}[\d=_])[\w.~+/=-]{8,}")

# --- long runs: base64, hexadecimal ---------------------------------------------------------------------------------

_HEXADECIMAL = re.compile(r"[0-9a-fA-F]{32}")
_ALPHANUMERIC = re.compile(r"[A-Za-z0-9]{20,}")
MIN_CHANGES = 0.3


def _run(match: re.Match[str]) -> str:
    """A long run of base64 or hexadecimal digits; a long name made of words stays."""
    run = match[0]
    if len(run) > MAX_IDENTIFIER_CHARACTERS or _HEXADECIMAL.search(run):
        return DATA
    return DATA if any(map(_is_random, _ALPHANUMERIC.findall(run))) else run


def _is_random(text: str) -> bool:
    """Digits and letters mixed, with many changes between digits, capitals and small letters: no words."""
    kinds = ["0" if c.isdigit() else "A" if c.isupper() else "a" for c in text]
    changes = sum(a != b for a, b in itertools.pairwise(kinds))
    return "0" in kinds and changes >= MIN_CHANGES * len(text)


# --- locations ------------------------------------------------------------------------------------------------------

_API_ROOTS = """
    abort_requests api classify cohere collective_rpc detokenize docs embed fault_tolerance finish_weight_update
    generative_scoring get_world_size health inference init_weight_transfer_engine invocations is_paused
    is_scaling_elastic_ep is_sleeping load metrics openai openapi.json pause ping pooling ready readyz realtime redoc
    rerank reset_encoder_cache reset_mm_cache reset_prefix_cache resume scale_elastic_ep score server_info sleep
    start_draft_weight_update start_profile start_weight_update stop_profile tokenize tokenizer_info
    update_weight_version update_weights version wake_up weight_info
"""
_SYSTEM_ROOTS = """
    app bin boot content data dev etc home lib lib32 lib64 media mnt nix opt private proc root run sbin scratch snap srv
    storage sys tmp users usr var workspace Applications Library System Users Volumes Windows windows
"""
_INNER_DIRECTORIES = ".cache .ssh blobs dist-packages node_modules site-packages snapshots"
_FILE_TYPES = """
    7z arrow avi bak bash bin bmp bz2 c cc cer cfg ckpt conf cpp crt csv cu cuh db dll doc docx env exe flac gguf gif go
    gz h h5 hpp htm html ini java jinja jinja2 jpeg jpg js json jsonl key lock log m4a md mkv mov mp3 mp4 npy npz ogg
    onnx p12 parquet pdf pem pfx pickle pid pkl png pt pth py pyc pyi rs safetensors sh so sock sqlite sqlite3 svg tar
    tif tiff tmp toml ts tsv txt wav webm webp whl xls xlsx xml xz yaml yml zip
"""


def _file_ends() -> str:
    """What stands behind a file's name: one of the types, in either case. By length, as a look-behind must be."""
    types = sorted(_FILE_TYPES.split(), key=len)
    groups = (_any(" ".join(group)) for _, group in itertools.groupby(types, len))
    return "|".join(rf"(?<=[^/\\]\.(?i:{group}))" for group in groups)


# Letters of alphabets that put spaces between words; Chinese or Japanese text may touch a path on both sides.
_IN_NAME = r"A-Za-z0-9\u00c0-\u052f_~@+%#$&*\-"
_START = rf"(?<![{_IN_NAME}.!?\\/])"
_NAME, _TOKEN = rf"[{_IN_NAME}.!?]", rf"(?>[{_IN_NAME}.!?\\/]*[{_IN_NAME}\\/])"
_OTHER_SCRIPT = r"(?:(?![\x00-\x7f])\w)"
_NOT_API = rf"(?!/+(?:{_any(_API_ROOTS)}|v\d{{1,2}}(?:alpha|beta)?\d{{0,2}})(?![\w-]))"
_UNQUOTED = r"[^\s'\"`<>]"

_PATH = re.compile(
    rf"""(?x)
    {_START} (?<!:(?=//)) (?={_NAME}*+[\\/]) (?=[\\/]*{_NAME})
    (?:
        (?:
            (?= (?: \.\.?/+ | ~[\w.-]*[\\/]+ ) [^\s\\/'"`<>] | \.\.?\\[\w-]{{2}} )     # relative to here, or to a home
          | (?= {_TOKEN} (?<=[\\/]\.\.) | [{_IN_NAME}.!?\\/]*?[\\/]\.\.[\\/] )       # goes up
        )
        {_TOKEN}
      | {_NOT_API}
        (?:
            (?:
                (?= \\?/[\\/]*{_NAME}+[\\/]+{_NAME} )                                # from the root
              | (?= [\\/]+(?:{_any(_SYSTEM_ROOTS)})[\\/]+(?:{_NAME}|{_OTHER_SCRIPT}) )
              | (?= (?:{_any(_SYSTEM_ROOTS)})[\\/]+{_NAME}+[\\/]+{_NAME} )
              | (?= [{_IN_NAME}.\\/]*?[\\/](?:{_any(_INNER_DIRECTORIES)})[\\/] )
            )
            {_TOKEN} (?: (?<=[\\/]) {_OTHER_SCRIPT}+ (?>[{_IN_NAME}.\\/]*) )*
          | {_TOKEN} (?:{_file_ends()})
        )
    )
    """
)
_QUOTED_PATH = re.compile(
    rf"""(?x)
    (?<=['"`])
    {_NOT_API}
    (?= (?:~[\w.-]*|\.\.?)/[^/] | /+[^/'"`<>\n]+/+[^/'"`<>\n] )
    (?: [^'"`<>\n\x20] | \x20(?![\x20/]) ){{1,400}}
    (?=['"`])
    """
)


# Functions, because `re` prepares a template anew for every text, match or not.
def _value(match: re.Match[str]) -> str:
    """What a secret's name says stays; the secret does not."""
    return match[1] + SECRET


def _quoted_value(match: re.Match[str]) -> str:
    return f"{match[1]}{match[3]}{DATA}{match[3]}"


RULES: tuple[Rule, ...] = (
    Rule("binary", "\ufffd", (), _BINARY, DATA),
    Rule(
        "rejected value",
        "=",
        ("value=",),
        re.compile(r" ?\((?:parameter=[^,()\n]{0,200}, )?value=[\s\S]*|\s*\[type=\w{1,60}, input_value=[\s\S]*"),
        "",
    ),
    Rule("rejected parameter", "=", ("(parameter=",), re.compile(r" ?\(parameter=[^,()\n]{0,200}\)"), ""),
    Rule(
        "traceback",
        "(",
        ("traceback (",),
        re.compile(r"Traceback \((?:most recent call last|innermost last)[\s\S]*"),
        SECRET,
    ),
    Rule(
        "traceback line", '"', ('file "',), re.compile(r'File "[^"\n]{0,500}"?, line \d+(?:, in \S{1,200})?'), LOCATION
    ),
    Rule(
        "PEM block",
        "-",
        ("-----begin",),
        re.compile(r"-----BEGIN (?:(?!-----END)[\s\S])*(?:-----END[^-]{0,60}-----)?"),
        SECRET,
    ),
    Rule(
        "data URI",
        ":",
        ("data:",),
        re.compile(r"data:(?=[\w.+-]{1,40}/|;)[\w.+/-]{0,100}(?:;[\w=.+-]{1,60}){0,5},[^\s'\"<>)]*", re.IGNORECASE),
        DATA,
    ),
    Rule(
        "base64 in lines",
        "\n",
        (),
        re.compile(r"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/_-]{60,}+(?:\s*\n\s*[A-Za-z0-9+/=_-]{4,})+"),
        DATA,
    ),
    Rule("cookies", ":", ("cookie:",), re.compile(r"(?i)\b(cookie: ?)(?!<redacted>)(?=[^\n]*=)[^\n]+"), _value),
    Rule("named secret", "='\"", _SECRET_HINTS[:6], _NAMED_SECRET, _value),
    Rule("named token", ":=s", _SECRET_HINTS, _NAMED_TOKEN, _value),
    Rule("header", " ", ("bearer ", "basic ", "digest "), _HEADER_KEY, _value),
    Rule("key", "", (), _KEY, SECRET),
    Rule("bytes", "\\", ("b'", 'b"'), re.compile(r"""(?<!\w)b(['"])(?=[^\n]{0,60}?\\x)(?:(?!\1)[^\n])*\1?"""), DATA),
    Rule(
        "tensor or array",
        "(",
        ("tensor(", "array("),
        re.compile(r"\b(?:tensor|array)\((?=[\[\d-])[^)]*\)?"),
        DATA,
    ),
    Rule(
        "numbers",
        ",[",
        (),
        re.compile(
            r"[0-9](?<![\d.][0-9])[\d.eE+-]{0,40}+(?:[\])]{0,3}(?:, ?|\s{1,4})[\[(]{0,3}[+-]?\d[\d.eE+-]{0,40}){15,}"
        ),
        DATA,
    ),
    Rule(
        "bytes in hexadecimal",
        " :-",
        (),
        re.compile(r"[0-9a-fA-F][0-9a-fA-F](?<!\w..)(?:[ :-][0-9a-fA-F]{2}\b){15,}"),
        DATA,
    ),
    Rule("object", "<", (" at 0x",), re.compile(r"<[^<>\n]{1,300} at 0x[0-9a-fA-F]+>"), OBJECT),
    Rule(
        "object",
        "<",
        (),
        re.compile(
            r"<(?:(?:bound method|built-in|function|module|class|coroutine|generator|async_generator)\b[^<>\n]|"
            r"[A-Za-z_][\w.]{0,100} object\b|[A-Za-z_][\w.]{0,100}: )(?:[^<>\n]|<[a-z]{1,10}>){0,300}>"
        ),
        OBJECT,
    ),
    Rule(
        "object with fields",
        "=",
        ("(",),
        re.compile(r"[A-Z](?<!\w[A-Z])\w{2,60}\((?=[a-z_]\w{0,60}=)[^()\n]*+(?:\([^()\n]*+\)?[^()\n]*+)*+\)?"),
        OBJECT,
    ),
    Rule(
        "content",
        "'\"",
        ('content"', "content'", 'prompt"', "prompt'", 'input"', "input'"),
        re.compile(
            r"""((["'])(?:content|prompt|negative_prompt|input)\2:\s?)(["'])(?!<data>)(?:(?!\3)[^\\]|\\.){4,}+\3?"""
        ),
        _quoted_value,
    ),
    Rule("memory address", "0", ("0x",), re.compile(r"\b0[xX][0-9a-fA-F]{6,}"), "<address>"),
    Rule(
        "URL of a place",
        "/",
        ("://",),
        re.compile(rf"(?<![A-Za-z0-9+.-])(?!(?i:https?|wss?):)[A-Za-z][A-Za-z0-9+.-]{{0,20}}://{_UNQUOTED}+"),
        LOCATION,
    ),
    Rule("URL credentials", "@", ("://",), re.compile(r"(?<=://)[^\s/?#'\"`<>]*@"), ""),
    Rule(
        "URL query",
        "?#",
        ("/",),
        re.compile(
            rf"((?i:https?|wss?)://[^\s?#'\"`<>]*[?#]|{_START}/[\w.~%/-]{{1,300}}\?(?=[\w.-]{{1,60}}=)){_UNQUOTED}+"
        ),
        _value,
    ),
    Rule(
        "drive",
        ":",
        (":\\", ":/"),
        re.compile(r"(?<![A-Za-z0-9])[A-Za-z]:[\\/](?!/)(?:[^\s'\"`<>|]|[ ](?=[^\s'\"`<>|\\]{0,64}\\))*"),
        LOCATION,
    ),
    Rule("share", "\\", ("\\\\",), re.compile(r"\\\\[A-Za-z0-9_.$-]+\\[^\s'\"`<>|]*"), LOCATION),
    Rule("quoted path", "'\"`", ("'/", '"/', "`/", "'.", '".', "`.", "'~", '"~', "`~"), _QUOTED_PATH, LOCATION),
    Rule("path", "/\\", (), _PATH, LOCATION),
    Rule(
        "long run",
        "",
        (),
        re.compile(rf"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/=_-]{{{MIN_RUN_CHARACTERS},}}"),
        _run,
    ),
)
"""In order: what contains others comes first."""

_MARKS = sorted({mark for rule in RULES for mark in rule.needs})
_IN_WORDS = [(rule.kind, rule.pattern.search) for rule in RULES if not rule.needs]
_STEPS = [
    (frozenset(rule.needs or (rule.kind,)), rule.hints, functools.partial(rule.pattern.sub, rule.replacement))
    for rule in RULES
]


def sanitize(text: str) -> str:
    """Public form of a text: at most 2,000 characters, without secrets, paths, addresses, dumps and controls.

    Total (anything that is no string gives ""), idempotent, linear. A longer text is cut at a token's boundary before
    anything else, because half a key is not recognized as one. Model ids such as ``org/model-name``, API paths such as
    ``/v1/images/edits`` and web URLs without credentials stay readable.
    """
    if not isinstance(text, str):
        return ""
    text = shorten(text, MAX_CHARACTERS).strip(_WHITE)  # else that alone costs another pass
    for _ in range(MAX_PASSES):
        clean = _once(text)
        if clean == text:
            return clean
        text = _without_a_list(clean)
    return SECRET


def _without_a_list(text: str) -> str:
    """Cut where the redactions begin to be a list, of which nobody needs the rest."""
    if text.count("<") <= MAX_REDACTIONS:
        return text
    last = next(itertools.islice(_REDACTION.finditer(text), MAX_REDACTIONS - 1, None), None)
    return text if last is None else f"{text[: last.end()]} {CUT}"


def _once(text: str) -> str:
    printable = text.isprintable()
    if not printable:
        text = _BINARY.sub(DATA, text)
    lowered = text.lower()
    marks = _marks(text, lowered)
    for needs, hints, substitute in _STEPS:
        if marks.isdisjoint(needs):
            continue
        if not hints:
            text = substitute(text)
        for hint in hints:
            if hint in lowered:
                text = substitute(text)
                break
    if not printable:  # no replacement adds what is not
        text = _UNSAFE.sub(_escaped, _SPACES.sub(" ", text))
    return shorten(text.strip(), MAX_CHARACTERS)


def _marks(text: str, lowered: str) -> set[str]:
    """What of the rules' needs there is in a text: characters, and the kinds of rules that match in a long word."""
    marks = {mark for mark in _MARKS if mark in lowered}
    words = " ".join([word for word in text.split() if len(word) >= MIN_KEY_CHARACTERS])
    if words:
        marks.update(kind for kind, search in _IN_WORDS if search(words))
    return marks


def shorten(text: str, limit: int) -> str:
    """The text, cut at a token's boundary if it has more than ``limit`` characters. It is not sanitized."""
    # The class's own methods: a subclass of str may have replaced them.
    head = str.__getitem__(text, slice(limit + 1))
    if len(head) <= limit:
        return head
    whole = head[: limit - len(CUT) + 1].rstrip(_PRINTABLE_ASCII)[: limit - len(CUT)].rstrip()
    return (whole or DATA) + CUT


def _escaped(match: re.Match[str]) -> str:
    return f"<U+{ord(match[0]):04X}>"


_PHRASES = frozenset(status.phrase for status in HTTPStatus)
"""The types that are no single word. To sanitize one is a third of what a record costs."""


def identifier(text: str | None) -> str | None:
    """Public form of a name such as a parameter's: sanitized, at most 128 characters; None if nothing is left."""
    if not isinstance(text, str):
        return None
    if type(text) is str and text in _PHRASES:
        return text
    # As sanitize would: of all rules only those for a key and a long run can match letters, digits and underscores.
    if str.isidentifier(text) and str.__len__(text) < MIN_RUN_CHARACTERS and not _KEY.search(text):
        return str.__getitem__(text, slice(None))  # a plain one
    clean = sanitize(text)
    if len(clean) > MAX_IDENTIFIER_CHARACTERS:
        clean = clean[: MAX_IDENTIFIER_CHARACTERS - len(CUT)].rstrip() + CUT
        clean = clean if sanitize(clean) == clean else DATA  # a half may look like something else
    return clean or None


_NOT_IN_REQUEST_ID = re.compile(r"[^A-Za-z0-9._:-]")


def request_id(text: str | None) -> str | None:
    """A request id that is safe in headers, log lines and bodies: at most 128 letters, digits and ``._:-``."""
    if not isinstance(text, str):
        return None
    return _NOT_IN_REQUEST_ID.sub("", str.__getitem__(text, slice(MAX_REQUEST_ID_CHARACTERS))) or None
