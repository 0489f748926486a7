# SPDX-License-Identifier: Apache-2.0
"""Sentences with something planted in them that is never public, and ordinary messages; both by a seed.

Every planted value is made up here, from the alphabet and length that its vendor documents.
"""

import base64
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

LOWER, UPPER, DIGITS = string.ascii_lowercase, string.ascii_uppercase, string.digits
ALPHANUMERIC, HEXADECIMAL = LOWER + UPPER + DIGITS, "0123456789abcdef"
URL_SAFE = ALPHANUMERIC + "_-"


def _words(text: str) -> list[str]:
    return text.split()


@dataclass(frozen=True, slots=True)
class Planted:
    """A text, and the pieces of it of which none may be left."""

    text: str
    private: tuple[str, ...]


def _take(random: Random, alphabet: str, length: int) -> str:
    """Characters of an alphabet, among them a digit where it has some, as in a real key."""
    text = random.choices(alphabet, k=length)
    if set(DIGITS) <= set(alphabet):
        text[random.randrange(length)] = random.choice(DIGITS)
    return "".join(text)


def _key(prefix: str, alphabet: str, length: int, suffix: str = "") -> Callable[[Random], Planted]:
    def make(random: Random) -> Planted:
        body = _take(random, alphabet, length)
        return Planted(prefix + body + suffix, (body[2:-2],))

    return make


def _shown(*forms: str, length: int = 12, alphabet: str = ALPHANUMERIC) -> Callable[[Random], Planted]:
    """A value in one of several forms, in each of which ``{}`` stands for it."""

    def make(random: Random) -> Planted:
        body = _take(random, alphabet, length)
        return Planted(random.choice(forms).format(body), (body,))

    return make


NAMES = ["anna", "build", "ci", "deploy", "jenkins", "models", "omni", "ubuntu", "worker0", "zhang"]
FOLDERS = ["cache", "checkpoints", "data", "images", "models", "outputs", "private", "runs", "uploads", "weights"]
FILES = _words(
    """
    config.json id_rsa.pem model.safetensors notes.txt prompt.txt ref.wav shard-00001-of-00002.bin voice.mp3
    """
)


def _unix_path(random: Random) -> Planted:
    name, folder, file = random.choice(NAMES), random.choice(FOLDERS), random.choice(FILES)
    root = random.choice(
        [
            "/home",
            "/Users",
            "/root",
            "/mnt",
            "/opt",
            "/srv",
            "/var/lib",
            "/workspace",
            "/data",
            "/nfs",
            "/dev/shm",
            "/tmp",
        ]
    )
    text = f"{root}/{name}/{folder}/{file}"
    return Planted(text, (f"{name}/", folder, file))


def _relative_path(random: Random) -> Planted:
    name, folder, file = random.choice(NAMES), random.choice(FOLDERS), random.choice(FILES)
    text = random.choice(["../{}/{}/{}", "~/{}/{}/{}", "./{}/{}/{}", "{}/{}/{}", "$HOME/{}/{}/{}"]).format(
        name, folder, file
    )
    return Planted(text, (folder, file))


def _source_path(random: Random) -> Planted:
    module = random.choice(["engine/core", "worker/gpu_runner", "utils/audio", "models/registry"])
    root = random.choice(
        ["vllm", "vllm_omni", "/usr/lib/python3.11/site-packages/torch", "/app/venv/lib/site-packages/x"]
    )
    return Planted(f"{root}/{module}.py", (f"{module}.py",))


def _windows_path(random: Random) -> Planted:
    name, folder, file = random.choice(NAMES), random.choice(FOLDERS), random.choice(FILES)
    text = random.choice(
        [
            "C:\\Users\\{}\\{}\\{}",
            "D:\\{}\\my {}\\{}",
            "\\\\server\\{}\\{}\\{}",
            "C:/Users/{}/{}/{}",
            "%APPDATA%\\{}\\{}\\{}",
        ]
    )
    return Planted(text.format(name, folder, file), (folder, file))


def _path_in_another_script(random: Random) -> Planted:
    folder, file = random.choice(["用户", "данные", "josé", "模型"]), random.choice(FILES)
    return Planted(f"/home/{folder}/{file}", (folder, file))


def _place(random: Random) -> Planted:
    scheme = random.choice(
        ["s3", "gs", "file", "hf", "az", "hdfs", "postgresql", "redis", "mongodb+srv", "amqp", "tcp"]
    )
    secret, folder = _take(random, ALPHANUMERIC, 12), random.choice(FOLDERS)
    user = random.choice(["", f"user:{secret}@"])
    return Planted(f"{scheme}://{user}bucket-{folder}/key/{secret}", (secret, folder))


def _url_credentials(random: Random) -> Planted:
    secret = _take(random, ALPHANUMERIC, 10)
    return Planted(f"https://svc:{secret}@files.example.org/a.png", (secret,))


def _url_query(random: Random) -> Planted:
    secret = _take(random, ALPHANUMERIC, 10)
    form = random.choice(
        [
            "https://files.example.org/a.png?X-Amz-Signature={}&e=1",
            "http://host:8000/v1/models?key={}",
            "wss://h/v1/realtime?intent={}",
            "/v1/images/edits?prompt={}",
            "https://h/cb#access_token={}",
        ]
    )
    return Planted(form.format(secret), (secret,))


def _pem(random: Random) -> Planted:
    kind = random.choice(
        ["RSA PRIVATE KEY", "PRIVATE KEY", "OPENSSH PRIVATE KEY", "CERTIFICATE", "PGP PRIVATE KEY BLOCK"]
    )
    lines = [_take(random, ALPHANUMERIC + "+/", 64) for _ in range(random.randint(1, 4))]
    end = random.choice([f"\n-----END {kind}-----", ""])
    return Planted(f"-----BEGIN {kind}-----\n" + "\n".join(lines) + end, tuple(line[:12] for line in lines))


def _json_web_token(random: Random) -> Planted:
    parts = [_take(random, URL_SAFE, length) for length in (20, 40, 43)]
    return Planted(f"eyJ{parts[0]}.eyJ{parts[1]}.{parts[2]}", (parts[0][3:], parts[1][3:15], parts[2][:12]))


def _data_uri(random: Random) -> Planted:
    body = base64.b64encode(random.randbytes(random.randint(6, 200))).decode().rstrip("=")
    media = random.choice(
        ["image/png", "audio/wav", "video/mp4", "application/octet-stream", "text/plain;charset=utf-8"]
    )
    return Planted(f"data:{media};base64,{body}", (body[:8], body[-6:]))


def _base64(random: Random) -> Planted:
    body = base64.b64encode(random.randbytes(random.randint(45, 300))).decode().rstrip("=")
    return Planted(body, (body[:10], body[-10:]))


def _wrapped_base64(random: Random) -> Planted:
    body = base64.encodebytes(random.randbytes(random.randint(120, 300))).decode().strip()
    return Planted(body, tuple(line[:10] for line in body.split("\n") if len(line) > 9))


def _hexadecimal(random: Random) -> Planted:
    body = random.choice([str.lower, str.upper])(_take(random, HEXADECIMAL, random.choice([32, 40, 64, 128])))
    return Planted(body, (body[:12],))


def _hexadecimal_bytes(random: Random) -> Planted:
    separator = random.choice(" :-")
    body = separator.join(f"{byte:02x}" for byte in random.randbytes(random.randint(20, 60)))
    return Planted(body, (body[:17], body[-17:]))


def _numbers(random: Random) -> str:
    return random.choice([", ", ","]).join(f"{random.uniform(-1, 1):.4f}" for _ in range(random.randint(20, 60)))


def _tensor(random: Random) -> Planted:
    body = _numbers(random)
    form = random.choice(
        ["tensor([{}], device='cuda:0')", "tensor([[{}]], dtype=torch.float16)", "array([{}])", "[{}]"]
    )
    return Planted(form.format(body), (body[:14], body[-14:]))


def _token_ids(random: Random) -> Planted:
    ids = [str(random.randrange(200, 150_000)) for _ in range(random.randint(20, 80))]
    text = random.choice(["[{}]", "token_ids=[{}]", "{}"]).format(", ".join(ids))
    return Planted(text, (", ".join(ids[:3]), ", ".join(ids[-3:])))


def _printed_array(random: Random) -> Planted:
    rows = [" ".join(f"{random.random():.3f}" for _ in range(6)) for _ in range(5)]
    return Planted("[[" + "]\n [".join(rows) + "]]", (rows[0][:11], rows[-1][:11]))


def _bytes(random: Random) -> Planted:
    body = random.choice([b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"RIFF\xff\0\0WAVEfmt ", b"\xff\xd8\xff\xe0JFIF"])
    return Planted(
        repr(body + random.randbytes(20)), tuple(mark for mark in ("IHDR", "WAVE", "JFIF") if mark.encode() in body)
    )


def _binary(random: Random) -> Planted:
    body = (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0\0\0\1" + random.randbytes(20)).replace(b" ", b"\0")
    return Planted(body.decode(random.choice(["latin-1", "utf-8"]), errors="replace"), ("IHDR",))


def _object(random: Random) -> Planted:
    address = f"0x{random.randrange(0x7F0000000000, 0x7FFFFFFFFFFF):012x}"
    form = random.choice(
        [
            "<_io.BytesIO object at {}>",
            "<PIL.PngImagePlugin.PngImageFile image mode=RGB size=8x8 at {}>",
            "<function load.<locals>.inner at {}>",
            "<bound method Engine.step of <vllm.engine.Engine object at {}>>",
            "pointer {}",
        ]
    )
    return Planted(form.format(address), (address[2:], "BytesIO") if "BytesIO" in form else (address[2:],))


def _class(random: Random) -> Planted:
    name = random.choice(["torch.Tensor", "vllm.outputs.RequestOutput", "numpy.ndarray"])
    form = random.choice(["<class '{}'>", "<{} object>", "<module '{}' from 'x'>"])
    return Planted(form.format(name), (name,))


def _traceback(random: Random) -> Planted:
    name, line = random.choice(NAMES), random.randrange(1, 900)
    body = (
        f"  File \"/opt/{name}/run.py\", line {line}, in step\n    return self.model(secret_{name})\nKeyError: '{name}'"
    )
    head = random.choice(["Traceback (most recent call last):\n", ""])
    return Planted(head + body, (f"/opt/{name}", "self.model") if head else (f"/opt/{name}", f"line {line}"))


def _rejected_value(random: Random) -> Planted:
    value = " ".join(random.choices(["a", "red", "fox", "jumps", "over", "it", "(really)", "'now'"], k=8))
    form = random.choice(
        [
            "Invalid prompt (parameter=prompt, value={})",
            "Invalid prompt (value={})",
            "Input should be a valid integer [type=int_parsing, input_value='{}', input_type=str]",
        ]
    )
    return Planted(form.format(value), (value,))


PLANTS: dict[str, Callable[[Random], Planted]] = {
    "OpenAI key": _key("sk-proj-", URL_SAFE, 48),
    "older OpenAI key": _key("sk-", ALPHANUMERIC, 48),
    "Anthropic key": _key("sk-ant-api03-", URL_SAFE, 93),
    "OpenRouter key": _key("sk-or-v1-", HEXADECIMAL, 64),
    "Stripe key": _key("sk_live_", ALPHANUMERIC, 24),
    "webhook secret": _key("whsec_", ALPHANUMERIC, 32),
    "Hugging Face token": _key("hf_", LOWER + UPPER, 34),
    "GitHub token": _key("ghp_", ALPHANUMERIC, 36),
    "fine-grained GitHub token": _key("github_pat_", ALPHANUMERIC + "_", 82),
    "GitLab token": _key("glpat-", URL_SAFE, 20),
    "Slack token": _key("xoxb-1234567890-", ALPHANUMERIC, 24),
    "Slack app token": _key("xapp-1-A", ALPHANUMERIC, 40),
    "AWS access key": _key("AKIA", UPPER + DIGITS, 16),
    "AWS session key": _key("ASIA", UPPER + DIGITS, 16),
    "Google API key": _key("AIza", URL_SAFE, 35),
    "Google OAuth token": _key("ya29.", URL_SAFE, 60),
    "Google OAuth secret": _key("GOCSPX-", URL_SAFE, 28),
    "Groq key": _key("gsk_", ALPHANUMERIC, 52),
    "NVIDIA key": _key("nvapi-", URL_SAFE, 64),
    "Replicate token": _key("r8_", ALPHANUMERIC, 37),
    "Perplexity key": _key("pplx-", ALPHANUMERIC, 48),
    "xAI key": _key("xai-", ALPHANUMERIC, 80),
    "LangSmith key": _key("lsv2_pt_", HEXADECIMAL, 32, "_0a1b2c3d4e"),
    "Pinecone key": _key("pcsk_", ALPHANUMERIC + "_", 60),
    "npm token": _key("npm_", ALPHANUMERIC, 36),
    "PyPI token": _key("pypi-AgEIcHlwaS5vcmc", URL_SAFE, 80),
    "Docker token": _key("dckr_pat_", URL_SAFE, 27),
    "DigitalOcean token": _key("dop_v1_", HEXADECIMAL, 64),
    "Databricks token": _key("dapi", HEXADECIMAL, 32),
    "Vault token": _key("hvs.", URL_SAFE, 90),
    "SendGrid key": _key("SG.", URL_SAFE, 22, "." + "aB3" * 14),
    "Twilio key": _key("SK", HEXADECIMAL, 32),
    "Mailgun key": _key("key-", HEXADECIMAL, 32),
    "Mailchimp key": _key("", HEXADECIMAL, 32, "-us12"),
    "Telegram token": _key("123456789:AA", URL_SAFE, 33),
    "Discord token": _key("MTI", ALPHANUMERIC, 21, ".GAbCdE." + "x9Y" * 10),
    "Shopify token": _key("shpat_", HEXADECIMAL, 32),
    "Grafana token": _key("glsa_", ALPHANUMERIC, 32, "_0a1b2c3d"),
    "Linear key": _key("lin_api_", ALPHANUMERIC, 40),
    "Figma token": _key("figd_", URL_SAFE, 40),
    "Atlassian token": _key("ATATT3x", URL_SAFE, 60),
    "Sentry token": _key("sntrys_eyJ", ALPHANUMERIC, 60),
    "Alibaba key": _key("LTAI", ALPHANUMERIC, 20),
    "key without a prefix": _shown("{}", length=44),
    "AWS secret": _shown(
        "aws_secret_access_key={}", "AWS_SECRET_ACCESS_KEY = {}", length=40, alphabet=ALPHANUMERIC + "+/"
    ),
    "storage account key": _shown("AccountName=x;AccountKey={};EndpointSuffix=y", length=60),
    "password": _shown(
        "password={}", "PASSWORD: '{}'", "'passwd': '{}'", 'db_password="{}"', "passphrase: {}", "pwd={}"
    ),
    "API key by name": _shown("api_key={}", '"api_key": "{}"', "X-API-Key: {}", "apiKey='{}'", "OPENAI_API_KEY={}"),
    "token by name": _shown("token={}", "access_token: {}", '"refresh_token": "{}"', "HF_TOKEN={}", "the token is {}"),
    "client secret": _shown("client_secret={}", "clientSecret: '{}'", "secret={}", "SECRET_KEY={}"),
    "bearer header": _shown("Authorization: Bearer {}", "authorization: bearer {}", "Bearer {}", length=24),
    "basic header": _shown("Authorization: Basic {}==", "Basic {}=", length=22),
    "cookie": _shown(
        "Cookie: session={}; theme=dark", "Set-Cookie: sid={}; HttpOnly", "cookie: a=b; sid={}", length=20
    ),
    "JSON web token": _json_web_token,
    "PEM block": _pem,
    "path": _unix_path,
    "relative path": _relative_path,
    "path of a source file": _source_path,
    "Windows path": _windows_path,
    "path in another script": _path_in_another_script,
    "place": _place,
    "URL with credentials": _url_credentials,
    "URL with a query": _url_query,
    "data URI": _data_uri,
    "base64": _base64,
    "base64 in lines": _wrapped_base64,
    "hexadecimal": _hexadecimal,
    "bytes in hexadecimal": _hexadecimal_bytes,
    "tensor": _tensor,
    "token ids": _token_ids,
    "printed array": _printed_array,
    "bytes": _bytes,
    "binary": _binary,
    "object": _object,
    "class": _class,
    "traceback": _traceback,
    "rejected value": _rejected_value,
}

FRAMES = """
{}
The request failed: {}
cannot use {} here
{} is not valid.
Failed to load {}, giving up
("{}")
error='{}'
got `{}` instead
无法处理 {} 请重试
加载失败：{}。
Could not read ({}); try again!
stage 1 said: {}; request chatcmpl-12 was aborted
- first\n- {}\n- last
[{}] is unexpected
😀 {} 😀
See {}
Invalid value for size: {}
{}: no such thing
> {}
a b c d e f g {} h i j k l m n
""".strip().split("\n")


def planted(count: int, seed: int = 0) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Kind, sentence and private pieces: every kind in turn, in every frame."""
    random = Random(seed)
    kinds = list(PLANTS.items())
    for index in range(count):
        kind, make = kinds[index % len(kinds)]
        found = make(random)
        frame = random.choice(FRAMES).replace("\\n", "\n")
        yield kind, frame.replace("{}", found.text), found.private


MODELS = _words(
    """
    meta-llama/Llama-3.1-8B-Instruct Qwen/Qwen2.5-0.5B-Instruct Qwen/Qwen2.5-Omni-7B stabilityai/stable-
    diffusion-3.5-large black-forest-labs/FLUX.1-dev Tongyi-MAI/Z-Image-Turbo ByteDance-Seed/BAGEL-7B-MoT
    openai/gpt-oss-120b tiny gpt-4o-mini Wan-AI/Wan2.2-T2V-A14B-Diffusers deepseek-ai/DeepSeek-R1-Distill-Qwen-32B
    mistralai/Mixtral-8x7B-Instruct-v0.1 nvidia/Llama-3_1-Nemotron-Ultra-253B-v1 microsoft/Phi-3.5-vision-instruct
    sentence-transformers/all-MiniLM-L6-v2
    """
)
FIELDS = _words(
    """
    size seed n prompt max_tokens temperature top_p num_inference_steps guidance_scale response_format stream
    voice max_completion_tokens logit_bias stop_token_ids negative_prompt input_reference video_url image_url
    ref_audio response_format.json_schema.schema tools.0.function.name messages.1.content.0.image_url body.model
    extra_params.layers hf_overrides chat_template_kwargs.enable_thinking mm_processor_kwargs lora_request
    secret_santa_mode token_type_ids
    """
)
ROUTES = _words(
    """
    /v1/images/edits /v1/images/generations /v1/chat/completions /v1/audio/speech /v1/audio/speech/batch
    /v1/videos /v1/videos/video_01HX/content /v1/models /tokenize /inference/v1/generate /health /v1/realtime
    /v1/audio/voices/ghost /v1/responses/resp_12/cancel /v2/rerank /metrics /openapi.json
    """
)
IDS = [
    "chatcmpl-9a0b1c2d3e4f5a6b",
    "123e4567-e89b-12d3-a456-426614174000",
    "video_01HXZ",
    "req-17",
    "cmpl-00ff",
    "speech-3",
]
URLS = [
    "https://docs.example.org/en/latest/serving.html",
    "http://localhost:8000/v1",
    "wss://host.example.org/v1/realtime",
]
SENTENCES = """
The model `{model}` does not exist.
Model {model} is not served here; try {model}.
{model} has no chat template, pass one with --chat-template
LoRA adapter 'style-{number}' is unknown, known are 'echo' and 'fable'
POST {route} needs an image.
Use {route} or {route} instead of {route}
{route} is not ready: the job {id} is in progress ({number}%)
Method Not Allowed: GET {route}
size must be one of 256x256, 512x512, 1024x1024, not {number}x{number}.
{field} must be between 0.0 and 2.0, got -{number}
{field} must be at least 1, got 0.
`{field}` and `{field}` cannot be used together
{field}: Input should be a valid integer, unable to parse string as an integer
{field}: Field required; {field}: Extra inputs are not permitted
body.{field}: String should match pattern '^\\d+x\\d+$'
{field}: String should match pattern '^[a-z0-9_-]{{1,64}}$'
{field}: Input should be 'auto', 'none' or 'required'
{field}: Value error, must be a multiple of {number} (or null)
This model's maximum context length is {number} tokens. However, your request has {number} input tokens.
max_tokens={number} is too large; prompt tokens: {number}, and/or n=2.
Unexpected token: ')' at position {number}
password: Field required
token: Input should be a valid string
Authentication is basic authentication or a token; see the documentation
api_key is required
The request {id} was aborted after {number}.{number} s
Request {id} was not found.
stage {number} stopped working and cannot process the request
The engine failed to process the request.
Stage 1 did not answer within {number} s (deadline {number} s)
content type image/png or text/plain expected, got audio/wav
Unsupported format 'ogg'; use wav, mp3, flac, opus, aac or pcm.
ratio 16/9 on 2024/01/{number} at 12:30:05
See {url} for the list.
Read {url}, then try again
voice 'alloy' is unknown, known are 'echo', 'fable' and 'onyx'
不支持的模型：{model}，请检查 model 参数 😀
参数 {field} 无效：必须在 1 到 {number} 之间
图片尺寸 {number}x{number} 超出限制，请使用 1024x1024。
是/否 或 真/假，不能同时为空
モデル {model} は利用できません（{number}）
요청을 처리할 수 없습니다: {field}
Le modèle {model} n'existe pas ; vérifiez « {field} ».
Модель {model} не найдена: {number}
🎉 {number} images, 🎧 {number} sounds 🙂
the tags are <|im_start|>, <image> and </system>, w/o /no_think
JSON schema error: 'type' must be one of ["object", "array", "string"]
Invalid value: {{"type": "json_object", "strict": true}}
[1, 2, 3, 4] has 4 items, {number} expected
expected shape (3, {number}, {number}), got (1, {number}, {number})
dtype float16 is not supported on cpu:0; use bfloat16
CUDA out of memory. Tried to allocate {number}.50 GiB
audio of {number}.{number} s at 24 kHz is longer than 30 s
file size {number} MB exceeds 25 MB (26214400 bytes)
seed must be < 2**63-1 and >= -1
{field} > {field} + {number} is false
tensor parallel size {number} does not divide {number} heads
temperature=0.{number}, top_p=0.9 & top_k=50 are exclusive
the array has {number} items; the secret of success is a valid key
Guardrail: the content is not allowed (category: violence)
A job in state `completed` cannot be cancelled.
HTTP 413: the body has {number} bytes, at most 10,485,760 are allowed
vLLM 0.30.0 (v1) does not support beam_search with n>{number}
Missing header: Content-Type, expected multipart/form-data; boundary=...
No live replica of stage {number}; try again.
ask support@example.org or call +49 30 {number}
""".strip().split("\n")


def ordinary(count: int, seed: int = 0) -> Iterator[str]:
    """Messages that have nothing to hide: every sentence in turn."""
    random = Random(seed)
    for index in range(count):
        sentence = SENTENCES[index % len(SENTENCES)].replace("\\\\", "\\")
        for slot, values in (("model", MODELS), ("field", FIELDS), ("route", ROUTES), ("id", IDS), ("url", URLS)):
            while f"{{{slot}}}" in sentence:
                sentence = sentence.replace(f"{{{slot}}}", random.choice(values), 1)
        while "{number}" in sentence:
            sentence = sentence.replace("{number}", str(random.randrange(2, 100_000)), 1)
        yield sentence.replace("{{", "{").replace("}}", "}")
