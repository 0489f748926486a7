# SPDX-License-Identifier: Apache-2.0
"""The sanitizer, rule by rule, and what it promises for any text."""

import functools
import re
import unicodedata
from collections.abc import Callable
from http import HTTPStatus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vllm_omni_errors import public_text
from vllm_omni_errors.public_text import (
    MAX_CHARACTERS,
    MAX_IDENTIFIER_CHARACTERS,
    MAX_REQUEST_ID_CHARACTERS,
    RULES,
    identifier,
    request_id,
    sanitize,
)

FRAGMENTS = [
    *" \t\n\\/\"'`<>()[]{},;:=|.?#@%+-_~$*&!01aZ\0\x1b\x85\u202e\ud800\udfff\u3000",
    *["的", "é", "\U0001f600", "0x7f00deadbeef", " at 0x7f00", "...", "<path>", "<data>", "<redacted>", "<object>"],
    *[
        "http://",
        "https://u:p@h/a?b=c#d",
        "s3://b/k",
        "file:///etc/x",
        "C:\\a b\\c",
        "\\\\srv\\share\\x",
        "/home/a",
        "~/x",
        "../x",
    ],
    *[
        "/v1/images/edits",
        "org/model-name",
        "a/b/c.py",
        "data:image/png;base64,AAAA",
        "data:,",
        "tensor([1, 2])",
        "array([",
        "1, " * 20,
    ],
    *[
        "password=x1y2z3",
        "token: abc12345",
        "Bearer abc123456",
        "eyJhbGciOi.eyJzdWIi.sig",
        "sk-ABCDEF1234567890",
        "AKIAABCDEFGHIJKLMNOP",
    ],
    *["-----BEGIN KEY-----", "-----END KEY-----", "Traceback (most recent call last):", 'File "/a/b.py", line 3, in f'],
    *[
        "(parameter=p, value=v)",
        "(value=",
        "(parameter=p)",
        "<class 'x'>",
        "<a.b object at 0x7f00aa>",
        "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo0",
    ],
    *["deadbeef" * 5, "a" * 130, "key", "secret", "=", "\ud83d"],
]
HOSTILE = st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join)


@pytest.mark.parametrize(
    "text",
    [
        "The model `org/model-name` does not exist.",
        "Model meta-llama/Llama-3.1-8B-Instruct is not served here; try Qwen/Qwen2.5-0.5B-Instruct.",
        "POST /v1/images/edits needs an image.",
        "Use /v1/chat/completions, /tokenize or /inference/v1/generate instead.",
        "/v1/videos/video_01HX/content is not ready.",
        "size must be one of 256x256, 512x512, 1024x1024, not 3x3.",
        "temperature must be between 0.0 and 2.0, got -3",
        "max_tokens=4096 is too large; prompt tokens: 1025, and/or n=2.",
        "Input should be 'auto', 'none' or 'required'",
        "Authentication is basic authentication or a token; password: required",
        "content type image/png or text/plain",
        "unexpected token: ')' at position 12",
        "See https://docs.example.org/en/latest/serving.html for the list.",
        "voice 'alloy' is unknown, known are 'echo' and 'fable'",
        "response_format.json_schema.schema is no schema",
        "chatcmpl-9a0b1c2d3e4f5a6b was aborted",
        "request 123e4567-e89b-12d3-a456-426614174000 was aborted",
        "GuardrailViolationErrorForUnsupportedContentTypes2",
        "不支持的模型：通义千问，请检查 model 参数 😀",
        "see LoRA task-description-generator-v2-final",
        "ratio 16/9 on 2024/01/02",
        "the template ends with </system> or /no_think, w/o bypass=True",
        "the tags are <|im_start|> and <image>",
        r"String should match pattern '^\d+x\d+$' or '^[\w.-]+\.\d{1,3}$'",
        r"no \n\n, no \"quotes\" and no \u00e9",
        "打开/关闭/重启，是/否",
        "a/b/c has 3 parts, 'x/y z/w' has 4",
        "password: Field required; api_key is required",
        "[1, 2, 3, 4] has 4 items, 7 expected",
    ],
)
def test_ordinary_text_comes_through_unchanged(text: str) -> None:
    assert sanitize(text) == text


REPLACED = [
    ("cannot open /home/someone/models/x.bin", "cannot open <path>"),
    ("cannot open /workspace/x", "cannot open <path>"),
    ("error:/etc/passwd.", "error:<path>."),
    ("open('/data/my models/a.bin')", "open('<path>')"),
    ("打不开/etc/passwd文件", "打不开<path>文件"),
    ("in vllm/entrypoints/openai/api.py", "in <path>"),
    (r"in C:\Users\some one\x.txt now", "in <path> now"),
    (r"on \\server\share\x", "on <path>"),
    ("from s3://bucket/key and file:///etc/x", "from <path> and <path>"),
    ("~/.ssh/id_rsa and ../secret", "<path> and <path>"),
    ("https://user:word@host/a", "https://host/a"),
    ("https://host/a?sig=abc&x=1 failed", "https://host/a?<redacted> failed"),
    ("password=hunter2", "password=<redacted>"),
    ('{"api_key": "abcdef"}', '{"api_key": "<redacted>"}'),
    ("token: abc123def456", "token: <redacted>"),
    ("Authorization: Bearer abc123def456", "Authorization: Bearer <redacted>"),
    ("key sk-CANARYabcdefghij is bad", "key <redacted> is bad"),
    ("hf_abcdefghijklmnopqrstuvwxyzABCDEFGH", "<redacted>"),
    ("AKIAIOSFODNN7EXAMPLE", "<redacted>"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "<redacted>"),
    ("a -----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY----- b", "a <redacted> b"),
    ("a -----BEGIN PRIVATE KEY-----\nMIIB", "a <redacted>"),
    ("bad data:image/png;base64,iVBORw0KGgo= here", "bad <data> here"),
    ("tensor([[1.0, 2.0],\n [3.0]], device='cuda:0') is bad", "<data> is bad"),
    ("ids " + ", ".join(map(str, range(30))), "ids <data>"),
    ("cannot identify <_io.BytesIO object at 0x7f2a1c0d>", "cannot identify <object>"),
    ("got <PIL.Image.Image image mode=RGB size=8x8 at 0x7F2A1C0D>", "got <object>"),
    ("got <HTTPStatus.OK: 200>", "got <object>"),
    ("got <class 'torch.Tensor'>", "got <object>"),
    ("at 0x7ffdeadbeef", "at <address>"),
    ("sum d41d8cd98f00b204e9800998ecf8427e", "sum <data>"),
    ("got QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZnaGlqa2xtbm9w", "got <data>"),
    ("n is bad (parameter=n, value=my prompt)", "n is bad"),
    ("n is bad (parameter=n)", "n is bad"),
    ("n is bad (value=my prompt)", "n is bad"),
    ('x\nTraceback (most recent call last):\n  File "/a/b.py", line 3, in f\nKeyError', "x <redacted>"),
    ('  File "x", line 3, in f', "<path>"),
    ("a\tb\r\nc", "a b c"),
    ("a\0b\x1b[31mc\x85d\u202ee", "a<U+0000>b<U+001B>[31mc<U+0085>d<U+202E>e"),
    ("a\ud800b", "a<U+D800>b"),
    ("  padded  ", "padded"),
    ("\x85 edges \x1f", "<U+0085> edges <U+001F>"),
    ("", ""),
    (r"on C:\my models\x and D:/y", "on <path> and <path>"),
    (r"in \Windows\System32 and models\x.bin", "in <path> and <path>"),
    ("in /home/用户/模型.bin 里", "in <path> 里"),
    ("in /home/josé/模型，请检查", "in <path>，请检查"),
    ("in $HOME/.ssh/id and x/.ssh/y/z", "in <path> and <path>"),
    ("go to /v1/../../etc/passwd", "go to <path>"),
    ("home/someone/x and x/site-packages/y", "<path> and <path>"),
    ("/model.safetensors and a/b.PY!", "<path> and <path>!"),
    (r"\/home\/someone\/x", "<path>"),
    ("open `~/my models/a`", "open `<path>`"),
    ("GET /v1/images?prompt=my+cat now", "GET /v1/images?<redacted> now"),
    ("wss://u@h/a#b", "wss://h/a#<redacted>"),
    ("got b'\\x89PNG\\r\\n' now", "got <data> now"),
    ("got \ufffdPNG\ufffd\ufffd\ufffd\ufffd\ufffd\ufffdIHDR now", "got <data> now"),
    ("got \x89PNG\x1a\0\0\0\r\0IHDR\0 now", "got <data> now"),
    ("got SamplingParams(n=1, stop=['x'], f=(1, 2)) now", "got <object> now"),
    ("got {'role': 'user', 'content': 'my secret cat'}", "got {'role': 'user', 'content': '<data>'}"),
    ('got {"prompt": "my \\"cat\\""}', 'got {"prompt": "<data>"}'),
    ("sum de:ad:be:ef:de:ad:be:ef:de:ad:be:ef:de:ad:be:ef now", "sum <data> now"),
    (
        "got [[0.1 0.2 0.3 0.4 0.5 0.6]\n [0.1 0.2 0.3 0.4 0.5 0.6]\n [0.1 0.2 0.3 0.4 0.5 0.6]] now",
        "got [[<data>]] now",
    ),
    ("got\n" + "QUJDREVGR0hJ" * 6 + "\nQUJD\nis bad", "got <data> is bad"),
    ("bad [type=int_parsing, input_value='my cat', input_type=str]", "bad"),
    ("Cookie: a=b; c=d", "Cookie: <redacted>"),
    ("the token is abc123def456 now", "the token is <redacted> now"),
    ("clientSecret: 'abcdef' and X-API-Key: abc123", "clientSecret: '<redacted>' and X-API-Key: <redacted>"),
    ("bot 123456789:" + "AAbbCCddEE-" * 3 + "xy now", "bot <redacted> now"),
    ("SKd41d8cd98f00b204e9800998ecf8427e", "<redacted>"),
    ("MTIzNDU2Nzg5MDEyMzQ1Njc4.GaBcDe.abcdefghijklmnopqrstuvwxyz", "<redacted>"),
    ("sk-abcdefghijklmnop is too short", "<redacted> is too short"),
    ("run " + "a1B2c3D4e5" * 4, "run <data>"),
]


@pytest.mark.parametrize(("text", "clean"), REPLACED)
def test_what_is_never_public_is_replaced(text: str, clean: str) -> None:
    assert sanitize(text) == clean


@pytest.mark.parametrize("index", range(len(RULES)), ids=lambda index: RULES[index].kind)
def test_no_rule_is_superfluous(index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = list(public_text._STEPS)
    del steps[index]
    monkeypatch.setattr(public_text, "_STEPS", steps)
    assert any(sanitize(text) != clean for text, clean in REPLACED)


@pytest.mark.parametrize("prefix", public_text._KEY_PREFIXES.split())
def test_a_key_is_known_by_its_prefix(prefix: str) -> None:
    assert sanitize(f"key {prefix}abcdefghijklmnopqrstuvwx1 is bad") == "key <redacted> is bad"
    assert sanitize(f"x{prefix}ab-c1") == f"x{prefix}ab-c1"


def test_case_z01_no_heap_address_in_the_text_of_an_image_library() -> None:
    assert "0x" not in sanitize("cannot identify image file <_io.BytesIO object at 0x7a95e299e750>")


@given(st.text() | HOSTILE)
@example("x" * 5_000)
@example("/a" * 8_000)
@example("\0" * MAX_CHARACTERS)
@example("/a/b " * 500)
def test_is_idempotent_bounded_and_free_of_controls(text: str) -> None:
    clean = sanitize(text)
    assert sanitize(clean) == clean
    assert len(clean) <= MAX_CHARACTERS
    assert not [c for c in clean if unicodedata.category(c) in ("Cc", "Cs")]
    clean.encode()


@given(HOSTILE)
def test_reaches_its_end_within_a_few_passes(text: str) -> None:
    text = public_text.shorten(text, MAX_CHARACTERS)
    for _ in range(public_text.MAX_PASSES - 1):
        text = public_text._once(text)
    assert public_text._once(text) == text


@pytest.mark.parametrize("value", [None, 1, b"x", ["x"], object()])
def test_what_is_no_text_has_no_public_form(value: object) -> None:
    assert sanitize(value) == ""  # type: ignore[arg-type]


def test_a_hostile_subclass_of_str_breaks_nothing() -> None:
    class Hostile(str):
        __slots__ = ()

        def __getitem__(self, key: object) -> str:
            raise RuntimeError

        def __len__(self) -> int:
            raise RuntimeError

        def __str__(self) -> str:
            raise RuntimeError

        def __eq__(self, other: object) -> bool:
            raise RuntimeError

        __hash__ = str.__hash__

    assert sanitize(Hostile("see /etc/passwd")) == "see <path>"
    for name in ("size", "/etc/passwd", "BadRequestError"):
        assert type(identifier(Hostile(name))) is str
        assert identifier(Hostile(name)) == identifier(name)
    assert type(request_id(Hostile("chatcmpl-1"))) is str


def test_a_long_text_is_cut_at_the_boundary_of_a_token() -> None:
    key = "sk-" + "A1" * 20
    text = "word " * 395 + key + " and more " * 10
    assert 1_975 < text.index(key) + 20 < MAX_CHARACTERS < text.index(key) + len(key) + 200
    clean = sanitize(text)
    assert clean.endswith("word...")
    assert "sk-" not in clean


def test_a_long_text_without_spaces_is_cut_between_characters_that_are_words_themselves() -> None:
    clean = sanitize("模" * 5_000)
    assert clean == "模" * (MAX_CHARACTERS - 3) + "..."


def test_a_list_of_what_was_replaced_is_cut() -> None:
    clean = sanitize("see /etc/passwd " * 100)
    assert clean == "see <path> " * 32 + "..."
    assert sanitize("see /etc/passwd " * 31) == ("see <path> " * 31).strip()
    assert sanitize("see /etc/passwd " * 32) == ("see <path> " * 32).strip()
    assert sanitize("<tag> " * 40) == ("<tag> " * 40).strip()
    assert sanitize("see /etc/passwd " + "<tag> " * 40) == ("see <path> " + "<tag> " * 40).strip()


def test_a_single_endless_token_is_not_shown_at_all() -> None:
    assert sanitize("x" * 5_000) == "<data>..."


def test_every_rule_sees_a_bounded_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is bounded, not measured: a text of a million characters reaches no pattern."""
    seen: list[int] = []

    def recording(substitute: Callable[[str], str], text: str) -> str:
        seen.append(len(text))
        return substitute(text)

    always = frozenset(public_text._MARKS)
    steps = [(always, (), functools.partial(recording, substitute)) for _, _, substitute in public_text._STEPS]
    monkeypatch.setattr(public_text, "_STEPS", steps)
    for shape in ("/a", "a/b ", "\\", '"', "=", "\n", "sk-", "[(", "的/", "-----BEGIN "):
        sanitize(shape * (1_000_000 // len(shape)))
    assert len(seen) >= 10 * len(RULES)
    assert max(seen) <= 2 * MAX_CHARACTERS


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.kind)
def test_the_hints_of_a_rule_are_lower_case(rule: public_text.Rule) -> None:
    assert all(hint == hint.lower() for hint in rule.hints)


@given(HOSTILE | st.sampled_from([text for text, _ in REPLACED]))
def test_marks_and_hints_only_save_work(text: str) -> None:
    text = public_text._BINARY.sub(public_text.DATA, text)  # comes before the marks, where a text needs it
    lowered = text.lower()
    for rule in RULES:
        if rule.hints and rule.pattern.search(text):
            assert any(hint in lowered for hint in rule.hints), rule.kind
        if rule.pattern.search(text):
            assert not public_text._marks(text, lowered).isdisjoint(rule.needs or {rule.kind}), rule.kind


@given(st.none() | st.text(max_size=400) | HOSTILE)
def test_an_identifier_is_short_and_sanitized(text: str | None) -> None:
    name = identifier(text)
    assert name is None or 0 < len(name) <= MAX_IDENTIFIER_CHARACTERS
    assert identifier(name) == name
    assert name is None or sanitize(name) == name


def test_a_phrase_of_http_is_what_sanitizing_leaves_of_it() -> None:
    phrases = [status.phrase for status in HTTPStatus]
    assert [identifier(phrase) for phrase in phrases] == [sanitize(phrase) for phrase in phrases] == phrases


def test_an_identifier_is_cut_to_its_length() -> None:
    words = "a b " * 40
    assert identifier(words[:127] + "c") == words[:127] + "c"
    assert identifier(words[:127] + "cd") == words[:125].rstrip() + "..."
    assert identifier("abcd " * 40) == ("abcd " * 25)[:124] + "..."
    assert identifier("sk-abcdefghijklmnop1") == "<redacted>"
    for name in ("hf_aaaaaaaaaa1", "hf_aaaaaaaaaaa1", "d" + "1" * 30, "d" + "1" * 31):
        assert identifier(name) == sanitize(name)


@given(st.from_regex(r"\A(?:hf_|AKIA|[a-z]_|\w)[A-Za-z0-9_]{0,40}\Z"))
def test_a_name_of_letters_and_digits_is_what_the_sanitizer_makes_of_it(name: str) -> None:
    assert identifier(name) == (sanitize(name) or None)


def test_a_name_that_looks_like_something_else_when_it_is_cut_is_not_shown() -> None:
    words = "a name of many words " * 6
    whole, cut = (words[:115] + name for name in ("see a/b.pyramid", "see a/b.py..."))
    assert sanitize(whole) == whole
    assert (len(cut), sanitize(cut)) == (128, words[:115] + "see <path>...")
    assert identifier(whole) == "<data>"


@pytest.mark.parametrize(("length", "cut"), [(19, False), (20, False), (21, True), (40, True)])
def test_a_text_is_cut_only_if_it_is_too_long(length: int, cut: bool) -> None:
    text = ("ab cd " * 10)[: length - 1] + "x"
    short = public_text.shorten(text, 20)
    assert short == (text if not cut else "ab cd ab cd ab cd" + "...")
    assert len(short) <= 20


@pytest.mark.parametrize("before", [14, 15, 16, 17, 18, 19])
def test_a_token_is_kept_whole_or_not_at_all(before: int) -> None:
    short = public_text.shorten("模" * before + "abc" + "模" * 10, 20)
    assert short == "模" * before + ("abc" if before == 14 else "") + "..." if before < 17 else "模" * 17 + "..."


@given(st.none() | st.text(max_size=400))
def test_a_request_id_is_safe_in_a_header(text: str | None) -> None:
    found = request_id(text)
    assert found is None or (re.fullmatch(r"[A-Za-z0-9._:-]+", found) and len(found) <= MAX_REQUEST_ID_CHARACTERS)
    assert request_id(found) == found


def test_a_request_id_is_cleaned() -> None:
    assert request_id("ab c\r\nSet-Cookie: x") == "abcSet-Cookie:x"
    assert request_id("\0\n") is None
    assert request_id("x" * 1_000) == "x" * MAX_REQUEST_ID_CHARACTERS


# --- what the patterns are made of ---


def test_alternatives_are_grouped_by_their_first_character_and_the_longest_comes_first() -> None:
    assert public_text._any("b a. ab abc") == r"a(?:bc|\.|b)|b(?:)"
    assert public_text._any("key-") == r"k(?:ey\-)"


def test_a_name_stands_for_its_usual_cases() -> None:
    pattern = re.compile(public_text._in_any_case("api-key pwd"))
    for name in ("api-key", "api_key", "apikey", "API_KEY", "Api-Key", "API-Key", "apiKey", "ApiKey", "PWD", "Pwd"):
        assert pattern.fullmatch(name), name
    assert not pattern.fullmatch("api key")
    assert not pattern.fullmatch("pWd")


def test_a_file_is_known_by_its_type_in_either_case() -> None:
    pattern = re.compile(rf"\S+(?:{public_text._file_ends()})")
    for name in ("a.c", "a.PY", "a/b.Json", "x.safetensors", "a.7z"):
        assert pattern.fullmatch(name), name
    for name in ("a.cc1", "a.d", "/.py", "ac", "a.jsonx"):
        assert not pattern.fullmatch(name), name


def test_a_key_is_looked_for_in_words_into_which_one_fits() -> None:
    short = "fw_" + "a1" * 6
    assert len(short) == public_text.MIN_KEY_CHARACTERS
    assert sanitize(f"a {short} b") == "a <redacted> b"
    assert sanitize(f"internationalization {short} internationalization").split()[1] == "<redacted>"
    assert public_text._marks(f"a {short} b", "") == {"key"}
    assert public_text._marks(f"a {short[:-1]} b", "") == set()
    assert public_text._marks("", "") == set()


def test_a_table_is_its_words() -> None:
    assert public_text.words(" a b\n c a ") == {"a", "b", "c"}


def test_a_long_run_of_words_stays_and_a_longer_one_does_not() -> None:
    names = ("a-name-made-of-many-words-v2-final-x", "ALongNameInCamelCaseWithoutAnyNumbers", "x" * 128, "1" * 31 + "g")
    for run in names:
        assert sanitize(run) == run
    for run in ("x" * 129, "a1" * 16, "deadbeef" * 4, "zz-" + "A1b2C3d4E5f6G7h8I9j0" + "-zzzzzzzzz"):
        assert sanitize(run) == "<data>"
    assert public_text._is_random("a1b2c3d4e5")
    assert not public_text._is_random("abcdefghij")
    assert not public_text._is_random("1234567890")
    assert public_text._is_random("aaaaaaa1Aa")
    assert public_text._is_random("aaaaaaa1a1")  # 3 changes in 10 characters are many
    assert not public_text._is_random("aaaaaaaaaa1a1a")
