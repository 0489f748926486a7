# SPDX-License-Identifier: Apache-2.0
"""The patches of a series: which rewrites each holds, and what its message says beside what they say themselves."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Patch:
    """One patch.

    Attributes:
        area: name of the area in `rewrites.AREAS`.
        subject: first line of the message.
        why: what it does and why, one paragraph.
        paths: patterns of paths below ``vllm_omni/``; a rewrite belongs to the first patch of its area that fits.
        statuses: the changelog fragments of the statuses that change, ``newsfragments/+NAME.status-change.md``.
        tests: tests of this project that hold it, in ``tests/rig/``, on the real server.
    """

    area: str
    subject: str
    why: str
    paths: tuple[str, ...] = ("*",)
    statuses: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()


VENDOR_SUBJECT = "Add the error contract as vllm_omni.errors"
VENDOR_WHY = (
    "One table says for each semantic exception its category, status, type and close code, and whether a client may"
    " repeat the request. Around it: the record of an error, which is safe to show and travels between processes; the"
    " exceptions; the sanitizer; one renderer for each transport. vllm_omni/errors.py becomes the package's __init__"
    " and stays as it is, so that nothing uses the contract yet and no status changes. It needs nothing that vLLM does"
    " not need."
)

IMAGE_PIPELINES = [
    "auk",
    "bagel",
    "boogu_image",
    "ernie_image",
    "flux*",
    "glm_image",
    "hidream*",
    "hunyuan_image3",
    "lance",
    "longcat_image",
    "mammoth_moda2",
    "ming_image",
    "nextstep_1_1",
    "omnigen2",
    "ovis_image",
    "qwen_image",
    "sd3",
    "sensenova_u1",
    "z_image",
]
VIDEO_AND_AUDIO_PIPELINES = [
    "diffusers_adapter",
    "helios",
    "hunyuan_video",
    "lingbot_video",
    "longcat_video",
    "ltx2",
    "minimax_h3",
    "sana_video",
    "stable_audio",
    "wan2_2",
]

PATCHES: tuple[Patch, ...] = (
    Patch(
        "bridge",
        "Give client errors semantic parents, and install one handler",
        "OmniClientError becomes a VLLMClientError instead of a ValueError, with everything that serving code raises"
        " or catches importable from vllm_omni.errors. One handler renders every error that reaches the application;"
        " code that is not migrated yet and relied on the old parent names the type.",
        statuses=("client-errors-of-other-routes", "tokenize-template", "unreadable-bodies"),
        tests=("test_contract_http.py",),
    ),
    Patch(
        "requests",
        "Raise typed errors on the chat and image routes",
        "Raise sites and returned error responses of these routes become semantic exceptions, together with the"
        " clauses that translated them: what a client can correct is 4xx with its parameter, everything else 5xx with"
        " a generic text. Calls of vLLM's code that reads a request convert the raw types that a client's mistake"
        " raises there.",
        statuses=(
            "batch-errors",
            "dropped-input",
            "edits-error-of-a-stage",
            "invocations",
            "lora-adapters",
            "media-transient",
            "media-unprocessable",
            "missing-chat-handler",
            "missing-upstream-handler",
            "no-image",
            "no-messages",
            "preprocessing",
            "prompt-too-long",
            "request-reading",
            "sampling-parameters",
            "seams",
            "typed-errors-of-the-engine",
            "unknown-model-diffusion-chat",
            "unknown-model-images",
        ),
        tests=("test_contract_http.py", "test_contract_media.py", "test_contract_seams.py"),
    ),
    Patch(
        "speech",
        "Raise typed errors on the speech routes",
        "The speech routes answered the server's own failures with 400 and their raw text, and streamed failures with"
        " 200. Raise sites, returned responses and the clauses around them go together; the first item of a stream is"
        " awaited before its status is sent.",
        statuses=(
            "several-workers",
            "speech-batch",
            "speech-events",
            "speech-media",
            "speech-missing-handler",
            "speech-server-errors",
            "speech-streams",
            "speech-unknown",
            "voices",
        ),
        tests=("test_contract_speech.py",),
    ),
    Patch(
        "videos",
        "Raise typed errors on the video routes, and store a job's error once",
        "A job stored the raw text of whatever it failed with, and its status was guessed from that text at each"
        " request. It stores the error object of the contract when it fails; references that the client gives are 422"
        " or, if their source fails for the moment, 500.",
        statuses=("video-content", "video-jobs", "video-media", "video-requests", "video-sync-failures"),
        tests=("test_contract_videos.py",),
    ),
    Patch(
        "control",
        "Raise typed errors on the routes that control an engine",
        "Sleep, wake-up, profiling and rollout sessions: calls that control an engine have a deadline of their own, a"
        " failed one restores admission, and a failed rollout step is no longer a success with an error inside.",
        statuses=("rollout-not-served", "rollout-steps", "sleep"),
        tests=("test_contract_control.py",),
    ),
    Patch(
        "reviewed",
        "Answer raw exceptions of reviewed routes with 500",
        "Every error of the listed routes is typed now, so that a raw exception on one of them is an unknown failure"
        " of the server, never the client's. Other routes keep vLLM's mapping of raw exceptions.",
        statuses=("output-conversion",),
        tests=("test_contract_http.py",),
    ),
    Patch(
        "stages",
        "Carry the whole error from a stage to the API process",
        "Messages between stages, orchestrator and API process carry the record of an error beside the flat fields,"
        " which stay for processes of another version. A request's failure no longer ends the orchestrator, and a lost"
        " stage fails the requests that it served instead of leaving them unanswered.",
        paths=("distributed/*", "engine/*", "entrypoints/*", "outputs/*"),
        statuses=(
            "lost-stage",
            "stage-errors",
            "stage-input",
            "stage-unavailable",
            "stage-deadline",
            "undecodable-message",
        ),
        tests=("test_contract_stages.py", "test_contract_failures.py", "test_contract_lifecycle.py"),
    ),
    Patch(
        "stages",
        "Carry the whole error through the diffusion stages",
        "Engine, executor, workers and stage processes of diffusion keep the class, the status and the parameter of an"
        " error instead of a text, and tell a request's failure from the end of the stage.",
        paths=("diffusion/[!m]*",),
        statuses=("generator-device",),
        tests=("test_contract_stages.py", "test_contract_places.py"),
    ),
    Patch(
        "stages",
        "Type the input checks of the image pipelines",
        "What a pipeline checks of a request is the client's to correct and names the parameter; what it checks of"
        " itself is the server's. Without rejected values in the texts.",
        paths=tuple(f"diffusion/models/{name}/*" for name in IMAGE_PIPELINES),
        tests=("test_decided_sites.py",),
    ),
    Patch(
        "stages",
        "Type the input checks of the video and audio pipelines",
        "As for the image pipelines, with the media that these take: the number of frames, audio, reference clips.",
        paths=tuple(f"diffusion/models/{name}/*" for name in VIDEO_AND_AUDIO_PIPELINES),
        tests=("test_decided_sites.py",),
    ),
    Patch(
        "stages",
        "Type the input checks of the world and robot pipelines",
        "As for the image pipelines, with what steers these: cameras, trajectories, actions, states.",
        paths=("diffusion/models/*",),
        tests=("test_decided_sites.py",),
    ),
    Patch(
        "stages",
        "Type the input checks of the autoregressive models",
        "Prompt building, stage input processors and input data of the autoregressive models: the same division"
        " between what the client can correct and what the server does by itself.",
        tests=("test_decided_sites.py", "test_contract_stages.py"),
    ),
    Patch(
        "offline",
        "Raise the same errors from Omni and AsyncOmni",
        "Offline users get the exception that the record describes, with the record on it, instead of a RuntimeError"
        " with a text; of a batch, the requests that succeeded are not lost with the one that failed.",
        tests=("test_contract_offline.py",),
    ),
    Patch(
        "streams",
        "Give streams a status before their first event, and one terminal event",
        "The first item of a stream is awaited, so that a failure before it is an HTTP error with its own status."
        " After it, exactly one error event with the object of HTTP errors ends the stream.",
        statuses=("streams-first-event", "streams-terminal-event"),
        tests=("test_contract_streams.py",),
    ),
    Patch(
        "sockets",
        "Refuse a WebSocket that no handler serves before it is accepted",
        "A session without a handler was accepted and then closed as if it had ended well. The handshake fails with"
        " 503 now, as the HTTP routes do.",
        paths=("entrypoints/openai/api_server.py",),
        statuses=("sockets-unavailable",),
        tests=("test_contract_unavailable.py", "test_contract_sockets.py"),
    ),
    Patch(
        "sockets",
        "Send the error object on the speech and video sockets",
        "Every error is the object of HTTP errors in one envelope. What the client can correct leaves the session"
        " open; any other error ends it with a close code that says whether to reconnect.",
        paths=(
            "entrypoints/openai/serving_speech_stream.py",
            "entrypoints/openai/serving_video_output_stream.py",
            "entrypoints/openai/video_stream_base.py",
        ),
        statuses=("sockets-errors", "sockets-malformed", "sockets-no-success-after-error"),
        tests=("test_contract_sockets.py",),
    ),
    Patch(
        "sockets",
        "Send the error object on the realtime, duplex and robot sockets",
        "The remaining sockets follow. Duplex keeps its own words beside the object, and the robot socket packs it as"
        " it packs everything.",
        statuses=("duplex-errors",),
        tests=("test_contract_duplex.py", "test_contract_sockets.py"),
    ),
    Patch(
        "finalize",
        "Take what vLLM raises raw for a client's mistake where it is called",
        "Every call that hands a request to vLLM's request-reading code was reviewed against vLLM 0.30.0: what it"
        " raises raw for a client's mistake becomes 400 or 422 with its parameter there. A raw exception on a route"
        " of vLLM-Omni is an unknown failure of the server now, 500; on vLLM's own routes its mapping stays.",
        statuses=("asleep", "deferred-media", "first-stage-media", "negative-prompt"),
        tests=("test_contract_seams.py", "test_upstream_routes.py"),
    ),
)
