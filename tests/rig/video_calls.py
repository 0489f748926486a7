# SPDX-License-Identifier: Apache-2.0
"""Requests for videos and for rollout sessions, and what becomes of them on a running server."""

import json
import time
from typing import Any

from calls import form
from support import Answer, Call, get, post, send

JOB_DEADLINE_S = 20.0
SIZE = "64x64"


def video(prompt: str = "x", **fields: str) -> Call:
    """One that waits for the video."""
    return form("/v1/videos/sync", **{"prompt": prompt, "size": SIZE, **fields})


def upload(field: str, content: bytes, name: str = "upload-4711.png", kind: str = "image/png", **fields: str) -> Call:
    """A video from a file."""
    sent = {"prompt": "x", "size": SIZE, **fields}
    return Call("POST", "/v1/videos/sync", form=sent, files=[(field, (name, content, kind))])


def reference(kind: str, url: str) -> Call:
    """A video from media behind a URL; ``kind`` is image, video or audio."""
    return video(**{f"{kind}_reference": json.dumps({f"{kind}_url": url})})


def extra(**params: Any) -> Call:
    return video(extra_params=json.dumps(params))


def lora(**fields: Any) -> Call:
    return video(lora=json.dumps(fields))


def start_job(url: str, prompt: str) -> str:
    """The id of a new job."""
    answer = send(url, form("/v1/videos", prompt=prompt, size=SIZE))
    assert answer.status == 200, answer.text
    return str(answer.body["id"])


def retrieve(url: str, identity: str) -> Answer:
    return send(url, get(f"/v1/videos/{identity}"))


def ended(url: str, identity: str) -> Answer:
    """The job as soon as it is over."""
    give_up = time.monotonic() + JOB_DEADLINE_S
    while (answer := retrieve(url, identity)).body["status"] in ("queued", "in_progress"):
        assert time.monotonic() < give_up, f"job {identity} is not over after {JOB_DEADLINE_S} s: {answer.text}"
        time.sleep(0.05)
    return answer


def content(identity: str) -> Call:
    return get(f"/v1/videos/{identity}/content")


def new_session(url: str) -> str:
    """The id of a new rollout session."""
    return str(send(url, post("/v1/realtime/sessions", {"model": "tiny"})).body["session_id"])


def step(session: str, number: int = 0, prompt: str = "x", **more: Any) -> Call:
    observation = {"prompt": prompt, "extra": more.pop("extra", {})}
    body = {"step_id": number, "observation": observation, "action": more}
    return post(f"/v1/realtime/sessions/{session}/step", body)
