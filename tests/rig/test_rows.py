# SPDX-License-Identifier: Apache-2.0
"""Each place of stock that answers wrongly, and what sees it: a request whose answer changes, or a pair of tests.
Needs no server: it holds the list against the tables and the tests, which ask the servers.

Places are `file:line` of vLLM-Omni 0.30.0 below `entrypoints/openai/`; where no file is named, of `api_server.py`.
"""

import ast
import importlib
from collections.abc import Mapping
from pathlib import Path

import pytest
from failures_table import MIGRATED, STOCK
from test_baseline_unavailable import STOCK as WITHOUT_A_HANDLER
from test_contract_places import EXPECTED as PLACES

HERE = Path(__file__).parent

ROWS: Mapping[str, tuple[str, ...]] = {
    "1206, 1211 raw chat body": (
        "cases.ONE_STAGE: chat: modalities not a list",
        "cases.TWO_STAGES: chat: logprobs not a boolean",
    ),
    "1241, 1318 chat without a handler": ("unavailable: chat", "unavailable: chat batch"),
    "1246, 1323, 1386, 1467 routes that translated everything to 500": (
        "cases.TWO_STAGES: chat: prompt too long",
        "cases.TWO_STAGES: batch: temperature -3",
        "raised: chat: VLLMValidationError",
        "test_contract_speech.WRONG: speech: raw error",
    ),
    "1427 speech batch, 1631, 1685 voices, 1877 rollout: any ValueError was 400": (
        "test_contract_speech.WRONG: batch: every item wrong",
        "test_contract_speech.WRONG: voices: no audio",
        "test_contract_control.STEPS: a raw ValueError",
    ),
    "2250, 2624 images: any ValueError was 400": (
        "cases.ONE_STAGE: images: output of a wrong dtype",
        "cases.TWO_STAGES: edits: output that cannot be encoded",
        "raised: images: ValueError",
    ),
    "2247, 2621, 2756 a client error's own status was trusted": (
        "raised: images: OmniClientError503",
        "test_contract_videos.FAILURES: a client error with a server's status",
    ),
    "2253, 2627, 2759 everything else was 500 in the route": (
        "raised: images: VLLMNotFoundError",
        "raised: images: VLLMValidationError",
        "test_contract_videos.FAILURES: nothing found",
    ),
    "2570 edits read an attribute that is not there": ("cases.TWO_STAGES: edits: prompt too long",),
    "2747 videos/sync: any TimeoutError was 504": ("test_contract_videos.FAILURES: the engine's own timeout",),
    "1538, 1543 HTTPException 503 and 409": (
        "unavailable: voices",
        "test_contract_control::test_on_stock + test_what_one_of_several_workers_cannot_do",
    ),
    "1868, 3014, 3032 HTTPException 501": (
        "cases.TWO_STAGES: rollout: not served",
        "test_baseline_unavailable::test_an_operation_that_the_engine_does_not_have"
        " + test_contract_unavailable::test_an_operation_that_the_engine_does_not_have",
    ),
    "1889 a step of a rollout that failed was 200": (
        "test_contract_control.STEPS: inference fails",
        "test_contract_control.STEPS: a dead stage",
    ),
    "1905 rollout: HTTPException 404 and 410": (
        "test_contract_control.REQUESTS: reset of an unknown session",
        "test_contract_control.REQUESTS: status of an unknown session",
    ),
    "3008 sleep and wake-up that the engine does not answer": (
        "test_contract_control::test_on_stock_every_later_request_waits_for_ever"
        " + test_a_sleep_that_the_engine_does_not_answer",
    ),
    "serving_chat.py:644 everything of preprocessing was 400, but what is typed": (
        "cases.TWO_STAGES: chat: prompt too long",
        "cases.TWO_STAGES: chat: template that raises",
    ),
    "serving_chat.py:866, 899, 2426 any ValueError was 400, and a 404 became 400": (
        "raised: chat: ValueError",
        "raised: chat: OmniClientError404",
    ),
    "serving_chat.py:4001 diffusion chat: everything was 500 of a client's type": (
        "cases.ONE_STAGE: chat: output that cannot be encoded",
        "cases.ONE_STAGE: chat: no messages",
    ),
    "serving_chat.py:2887, 3823, 3880 no output": (
        "cases.TWO_STAGES: chat: no image",
        "cases.ONE_STAGE: chat: no image",
    ),
    "serving_speech.py:2459, 2700 any ValueError was 400, and no audio too": (
        "test_contract_speech.WRONG: speech: no audio",
        "test_contract_speech.WRONG_DIFFUSION: speech: raw error",
    ),
    "serving_speech.py:2473 an answer made by hand": ("test_contract_speech.WRONG_DIFFUSION: speech: a stage fails",),
    "serving_speech.py:2800 a batch of which every item failed was 200": (
        "test_contract_speech.WRONG: batch: every item fails",
    ),
    "serving_audio_generate.py:119, 135, 163 everything was 400": (
        "test_contract_speech.WRONG: audio: not served by this pipeline",
    ),
    "serving_video.py:199, 302, 320, 340, 347, 445, 452, 674 HTTPException 400": (
        "test_contract_videos.REQUESTS: size of nothing",
        "test_contract_videos.REQUESTS: LoRA without name",
        "test_contract_videos.REQUESTS: image reference by file id",
    ),
    "serving_video.py:698, 706, 736, 780 HTTPException 503 and 500": (
        "cases.TWO_STAGES: videos: not served",
        "test_contract_videos.FAILURES: no video",
    ),
    "video/generation/helpers.py:121 to 1132: HTTPExceptions, and bad media was 400": (
        "test_contract_videos.REQUESTS: truncated image",
        "test_contract_videos.REQUESTS: upload that is no image",
        "test_contract_videos.REQUESTS: mask not JSON",
        "test_contract_videos.REQUESTS: unknown job",
    ),
    "images/helpers.py:202, 213, 222 media was 400": (
        "cases.ONE_STAGE: edits: upload that is no image",
        "cases.TWO_STAGES: edits: URL that is no URL",
        "cases.TWO_STAGES: edits: mask that is no image",
    ),
    "images/helpers.py:130, 132 the server's own output was 400": (
        "cases.ONE_STAGE: images: output of a wrong dtype",
        "cases.ONE_STAGE: images: output of a wrong type",
    ),
    "app_state.py:58, diffusion.py:32, 50 HTTPException 503 and 500": ("unavailable: images",),
    "no image was a success": ("cases.ONE_STAGE: images: no image", "cases.TWO_STAGES: edits: no image made"),
    "an unknown model was 400": ("cases.ONE_STAGE: images: unknown model", "cases.TWO_STAGES: videos: unknown model"),
    "an unknown route had another shape": ("cases.ONE_STAGE: unknown route",),
}
"""Place → a case of a table whose two answers differ, an exception raised on a route, a route without its handler, or a
test of stock and one of migrated."""

BEYOND: Mapping[str, tuple[str, ...]] = {
    # Streams
    "serving_chat.py:1552, 2383 a chat stream: other statuses, no ids, HTTP 200": (
        "test_baseline_streams::test_error_event_of_a_stream"
        " + test_contract_streams::test_case_s01_a_failure_before_the_first_event_is_an_http_error",
    ),
    "serving_chat.py:3573 a stream of edits: two shapes, a raw path": (
        "test_baseline_streams::test_error_event_of_an_edit_on_a_dead_stage_has_the_chat_shape"
        " + test_contract_streams::test_case_s01_a_failure_before_the_first_event_is_an_http_error",
        "test_baseline_streams::test_error_event_shows_a_path_and_an_address"
        " + test_contract_streams::test_case_s01_a_failure_before_the_first_event_is_an_http_error",
    ),
    "serving_speech.py:1876 a stream of speech: a guardrail was 500": (
        "test_contract_speech::test_stock_makes_a_server_error_of_every_failure"
        " + test_events_end_in_the_error_that_an_answer_would_have_been",
    ),
    "serving_speech.py:1776 raw audio: cut off, and a success in the counters": (
        "test_contract_speech::test_stock_breaks_raw_audio_off_too"
        " + test_raw_audio_that_is_broken_off_is_counted_and_logged_once",
    ),
    # WebSockets
    "serving_speech_stream.py:221, 396, 511 success follows the error": (
        "test_baseline_streams::test_a_failed_sentence_on_the_speech_socket_is_followed_by_success_events"
        " + test_contract_sockets::test_any_other_error_ends_the_session_with_its_event_and_its_code",
    ),
    "serving_video_output_stream.py:172, 514, 773 broken off, a path is shown": (
        "test_baseline_streams::test_the_video_socket_shows_a_path"
        " + test_contract_sockets::test_any_other_error_ends_the_session_with_its_event_and_its_code",
    ),
    "video_stream_base.py:679, 846, 1039 video chat: success follows the error": (
        "test_contract_sockets::test_stock + test_a_mistake_is_answered_and_the_session_goes_on",
    ),
    "realtime_connection.py:199 realtime: the error is a text": (
        "test_contract_sockets::test_stock + test_any_other_error_ends_the_session_with_its_event_and_its_code",
    ),
    "duplex/serving.py:159 duplex: the code is a word": ("place: event_of_a_duplex_session",),
    "openpi/connection.py:204, 254, 287 robot: a bare message": (
        "test_baseline_streams::test_the_robot_socket_answers_in_msgpack_and_stays_open"
        " + test_contract_sockets::test_a_mistake_is_answered_and_the_session_goes_on",
    ),
    "1704, 1769 a session that no handler serves is accepted, in two shapes": (
        "test_contract_sockets::test_what_this_server_will_never_have_is_an_http_answer",
    ),
    # Video jobs
    "video/generation/helpers.py:329 the raw text is stored": (
        "test_baseline_streams::test_a_failed_job_shows_a_path"
        " + test_contract_videos::test_a_failed_job_shows_its_error",
    ),
    "2835 the status is guessed anew, the job is the body of a 5xx": (
        "test_contract_videos::test_stock_answered_for_a_failed_job_as_if_the_request_had_failed"
        " + test_a_failed_job_shows_its_error",
        "test_contract_videos::test_on_stock_the_official_client_could_not_poll_a_failed_job"
        " + test_the_official_client_polls_a_job_to_its_error",
    ),
    "the content of a failed job is 422, that of a running one 404": (
        "test_contract_videos::test_stock_answered_for_a_failed_job_as_if_the_request_had_failed"
        " + test_the_content_of_a_failed_job_is_its_error",
        "test_contract_videos::test_the_content_of_a_running_job_is_a_conflict",
    ),
    # Offline
    "omni_base.py:503 a status that is no 4xx was a RuntimeError": ("place: message_of_a_failure_offline",),
    "omni_base.py:554 the subclass and the stage were lost": ("place: output_of_a_failure_offline",),
    "omni.py:98 any exception closed the engine": (
        "test_contract_offline::test_stock_loses_the_batch_and_the_engine"
        " + test_one_failure_of_a_batch_loses_that_request_only",
    ),
    # Engine
    "errors.py the owner was guessed from the status": (
        "raised: images: OmniClientError503",
        "test_baseline_failures::test_every_exception_with_two_stages"
        " + test_contract_stages::test_an_exception_in_a_stage_arrives_with_status_type_parameter_and_stage",
    ),
    "messages.py:83, outputs/__init__.py:185, data.py:1793 flat fields": (
        "test_baseline_failures::test_every_exception_with_two_stages"
        " + test_contract_stages::test_an_exception_in_a_stage_arrives_with_status_type_parameter_and_stage",
    ),
    "stage_diffusion_proc.py:414, 509 a failed call was a text": ("place: call_that_failed_in_a_stage_process",),
    "inline_stage_diffusion_client.py:193, diffusion_engine.py:558 a 4xx or a RuntimeError": (
        "test_baseline_failures::test_every_exception_with_one_stage"
        " + test_contract_stages::test_an_exception_in_a_stage_arrives_with_status_type_parameter_and_stage",
    ),
    "diffusion_model_runner.py:1278 dropped": ("place: fallback_of_the_runner",),
    "multiproc_executor.py:617, 665, 1095 dropped": (
        "place: request_of_several_processes",
        "place: answer_of_a_worker",
        "place: status_of_ranks",
    ),
    "uniproc_executor.py:151, diffusion_engine.py:1677 dropped": (
        "test_baseline_failures::test_every_exception_with_two_stages"
        " + test_contract_stages::test_an_exception_in_a_stage_arrives_with_status_type_parameter_and_stage",
    ),
    "request_batch.py:68 dropped": ("place: batch_of_requests",),
    "multiproc_executor.py:296 a traceback in the message": (
        "test_contract_places::test_a_traceback_of_a_worker_is_in_no_message",
    ),
    "orchestrator.py:1279, 1332, 1435 a dead replica or stage, and none: 500, no stage": (
        "test_baseline_lifecycle::test_the_ar_stage_dies + test_contract_lifecycle::test_the_ar_stage_dies",
    ),
    "orchestrator.py:1418 a lost hand-over went the client's way": (
        "test_baseline_failures::test_a_lost_handover_between_the_stages_is_500_without_its_stage"
        " + test_contract_stages::test_an_exception_in_a_stage_arrives_with_status_type_parameter_and_stage",
    ),
    "orchestrator.py:460, omni_engine_base.py:481 the engine's end": ("place: call_into_a_dead_engine",),
    "membership_controller.py:133, orchestrator.py:1525, 1617, 2971, 2991 no status": (
        "place: replica_that_disappeared",
        "place: companion_that_was_lost",
        "place: session_request",
        "place: interaction_without_request",
        "place: interaction_that_is_refused",
    ),
    "orchestrator.py:2216, 2389, 581 the stage input processor ended the orchestrator": (
        "test_baseline_lifecycle::test_the_stage_input_processor_raises"
        " + test_contract_stages::test_a_failing_request_harms_no_neighbour",
    ),
    "async_omni.py:975 a sleep that a stage failed at was a success": (
        "test_contract_sleep::test_on_stock + test_a_sleep_that_a_stage_fails_at_is_undone",
    ),
    "async_omni.py:1109 an adapter that no stage could load was a success": (
        "test_contract_sleep::test_on_stock + test_an_adapter_that_no_stage_can_load",
    ),
    "orchestrator.py:734 a sleep that failed in a language stage ended the server": (
        "test_contract_sleep::test_on_stock + test_a_level_that_there_is_not",
        "place: sleep_that_a_language_stage_refuses",
        "place: wake_up_that_a_language_stage_refuses",
    ),
    "rpc_result_router.py:145, async_omni.py:588 a failed call was a RuntimeError": (
        "place: call_into_a_dead_engine",
        "place: call_that_the_engine_does_not_answer",
        "place: pause_that_a_stage_refuses",
    ),
    "stage_diffusion_client.py:510 after the kill of a diffusion stage every request hangs": (
        "test_baseline_lifecycle::test_the_diffusion_stage_is_killed"
        " + test_contract_lifecycle::test_the_diffusion_stage_is_killed",
    ),
    "no deadline": (
        "test_baseline_lifecycle::test_a_frozen_stage_answers_nobody"
        " + test_contract_lifecycle::test_a_frozen_stage_is_a_timeout_until_it_goes_on",
    ),
    "a sampling parameter that vLLM refuses was 500": ("cases.TWO_STAGES: chat: temperature -3",),
}
"""The same beyond the HTTP routes, below `vllm_omni/`; a place without a server is one of places_program.py."""

FRAGMENTS: Mapping[str, tuple[str, ...]] = {
    "asleep": (
        "test_contract_places::test_stock_loses_it + test_contract_lifecycle::test_a_request_while_a_stage_sleeps",
    ),
    "batch-errors": (
        "cases.TWO_STAGES: batch: prompt too long",
        "cases.TWO_STAGES: batch: output that cannot be encoded",
    ),
    "client-errors-of-other-routes": (
        "raised: chat: OmniClientError404",
        "test_baseline_failures::test_every_exception_with_two_stages"
        " + test_contract_failures::test_an_exception_at_the_front_has_its_own_status_and_type",
    ),
    "deferred-media": (
        "test_contract_speech.WRONG: chat: image for a later stage broken",
        "test_contract_speech::test_what_vllm_refuses",
        "test_contract_speech::test_media_of_a_chat_that_cannot_be_fetched_now",
        "test_contract_speech::test_a_url_of_a_chat_that_leads_to_no_media",
    ),
    "dropped-input": (
        "cases.ONE_STAGE: chat: image that is none",
        "cases.ONE_STAGE: chat: size that is no size",
        "cases.ONE_STAGE: chat: LoRA without name",
        "cases.ONE_STAGE: chat: no messages",
    ),
    "duplex-errors": (
        "test_contract_duplex::test_a_session_that_cannot_be_had",
        "test_contract_duplex::test_a_message_that_fails_in_a_session",
    ),
    "edits-error-of-a-stage": ("cases.TWO_STAGES: edits: prompt too long",),
    "first-stage-media": (
        "test_contract_speech.WRONG: chat: image broken",
        "test_contract_speech::test_what_vllm_refuses",
        "test_contract_speech::test_a_url_of_a_chat_that_leads_to_no_media",
        "test_contract_speech::test_media_of_a_chat_that_cannot_be_fetched_now",
    ),
    "generator-device": (
        "cases.TWO_STAGES: images: device that there is not",
        "cases.ONE_STAGE: images: device that there is not",
        "cases.ONE_STAGE: edits: device that there is not",
    ),
    "invocations": (
        "cases.ONE_STAGE: invocations: a prompt, not served",
        "test_contract_http::test_a_chat_body_by_invocation_of_a_diffusion_server",
    ),
    "lora-adapters": ("test_contract_control::test_on_stock + test_an_adapter_on_a_server_of_one_diffusion_model",),
    "lost-stage": (
        "test_baseline_lifecycle::test_the_diffusion_stage_is_killed"
        " + test_contract_lifecycle::test_the_diffusion_stage_is_killed",
    ),
    "media-transient": (
        "test_contract_media::test_stock_took_every_failure_for_the_clients + test_an_edit_of_a_url",
        "test_contract_media::test_an_edit_of_a_url_that_refuses",
    ),
    "media-unprocessable": (
        "cases.ONE_STAGE: edits: upload that is no image",
        "cases.TWO_STAGES: edits: truncated upload",
        "test_contract_media::test_stock_took_every_failure_for_the_clients + test_an_edit_of_a_url",
    ),
    "missing-chat-handler": ("unavailable: chat", "unavailable: chat batch"),
    "missing-upstream-handler": (
        "cases.ONE_STAGE: tokenize: not served",
        "cases.ONE_STAGE: detokenize: not served",
        "cases.ONE_STAGE: completions: not served",
        "cases.ONE_STAGE: responses: not served",
        "cases.ONE_STAGE: messages: not served",
        "cases.TWO_STAGES: scoring: not served",
    ),
    "negative-prompt": (
        "cases.TWO_STAGES: images: negative prompt too long",
        "cases.TWO_STAGES: edits: negative prompt too long",
        "cases.TWO_STAGES: chat: negative prompt too long",
    ),
    "no-image": ("cases.ONE_STAGE: images: no image", "cases.TWO_STAGES: batch: no image"),
    "no-messages": ("cases.TWO_STAGES: chat: no messages",),
    "output-conversion": (
        "cases.ONE_STAGE: images: output of a wrong dtype",
        "raised: images: ValueError",
        "raised: chat: ValueError",
    ),
    "preprocessing": ("test_contract_speech.WRONG: chat: a model that fails at its media",),
    "prompt-too-long": (
        "cases.TWO_STAGES: images: prompt too long",
        "cases.TWO_STAGES: edits: prompt too long",
        "cases.TWO_STAGES: chat: prompt too long",
    ),
    "request-reading": (
        "cases.TWO_STAGES: images: empty prompt",
        "cases.TWO_STAGES: images: prompt with a lone surrogate",
        "cases.TWO_STAGES: chat: height that is no number",
        "cases.TWO_STAGES: edits: LoRA nested too deeply",
        "cases.TWO_STAGES: chat: min_tokens over max_tokens",
        "cases.TWO_STAGES: chat: unknown stage parameter",
        "cases.TWO_STAGES: chat: template that raises",
    ),
    "rollout-not-served": ("cases.TWO_STAGES: rollout: not served",),
    "rollout-steps": (
        "test_contract_control.STEPS: inference fails",
        "test_contract_control.STEPS: a stage that is not there",
        "test_contract_control.STEPS: a raw ValueError",
        "test_contract_control.REQUESTS: model that is not served",
    ),
    "sampling-parameters": ("cases.TWO_STAGES: chat: temperature -3", "cases.TWO_STAGES: batch: temperature -3"),
    "seams": ("test_contract_seams::test_answer_with_two_stages", "test_contract_seams::test_answer_with_one_stage"),
    "several-workers": ("test_contract_control::test_on_stock + test_what_one_of_several_workers_cannot_do",),
    "sleep": (
        "test_contract_control::test_on_stock_every_later_request_waits_for_ever"
        " + test_a_sleep_that_the_engine_does_not_answer + test_a_sleep_of_no_stage",
        "test_contract_control::test_on_stock + test_a_profiler_that_the_engine_does_not_answer_for",
        "test_contract_control::test_a_profile_of_a_stage_that_is_not_there",
        "test_contract_sleep::test_on_stock + test_a_sleep_that_a_stage_fails_at_is_undone"
        " + test_a_level_that_there_is_not + test_an_adapter_that_no_stage_can_load"
        " + test_a_stage_whose_weights_are_discarded_is_not_woken"
        " + test_a_stage_that_is_gone_neither_sleeps_nor_is_profiled + test_a_frozen_stage_that_is_told_to_sleep"
        " + test_a_language_stage_that_slept_and_was_woken"
        " + test_calls_by_vllms_routes_for_development + test_a_stage_that_dies_before_it_answers_a_call",
    ),
    "sockets-errors": (
        "test_contract_sockets::test_stock + test_any_other_error_ends_the_session_with_its_event_and_its_code",
    ),
    "sockets-malformed": ("test_contract_sockets::test_stock + test_a_mistake_is_answered_and_the_session_goes_on",),
    "sockets-no-success-after-error": (
        "test_baseline_streams::test_a_failed_sentence_on_the_speech_socket_is_followed_by_success_events"
        " + test_contract_sockets::test_any_other_error_ends_the_session_with_its_event_and_its_code",
    ),
    "sockets-unavailable": (
        "test_contract_sockets::test_stock + test_what_this_server_will_never_have_is_an_http_answer",
    ),
    "speech-batch": (
        "test_contract_speech.WRONG: batch: every item fails",
        "test_contract_speech.WRONG_DIFFUSION: batch: not served",
    ),
    "speech-events": (
        "test_contract_speech::test_stock_makes_a_server_error_of_every_failure"
        " + test_events_end_in_the_error_that_an_answer_would_have_been",
    ),
    "speech-media": ("test_contract_speech::test_reference_audio", "test_contract_speech.WRONG: voices: no audio"),
    "speech-missing-handler": (
        "unavailable: speech",
        "unavailable: speech batch",
        "unavailable: audio",
        "unavailable: voices",
    ),
    "speech-server-errors": (
        "test_contract_speech.WRONG: speech: no audio",
        "test_contract_speech.WRONG_DIFFUSION: speech: raw error",
        "test_contract_speech.WRONG: audio: not served by this pipeline",
    ),
    "speech-streams": (
        "test_contract_speech.WRONG: events: a stage fails",
        "test_contract_speech.WRONG: raw: a stage fails",
    ),
    "speech-unknown": (
        "test_contract_speech.WRONG_DIFFUSION: speech: unknown model",
        "test_contract_speech.WRONG_DIFFUSION: speech: unknown voice",
        "test_contract_speech.WRONG_DIFFUSION: audio: unknown model",
    ),
    "stage-deadline": (
        "test_baseline_lifecycle::test_a_frozen_stage_answers_nobody"
        " + test_contract_lifecycle::test_a_frozen_stage_is_a_timeout_until_it_goes_on",
    ),
    "stage-errors": (
        "test_baseline_failures::test_every_exception_with_two_stages"
        " + test_contract_stages::test_an_exception_in_a_stage_arrives_with_status_type_parameter_and_stage",
    ),
    "stage-input": (
        "test_baseline_lifecycle::test_the_stage_input_processor_raises"
        " + test_contract_stages::test_an_exception_in_a_stage_arrives_with_status_type_parameter_and_stage",
    ),
    "stage-unavailable": (
        "test_baseline_lifecycle::test_the_ar_stage_dies + test_contract_lifecycle::test_the_ar_stage_dies",
    ),
    "streams-first-event": (
        "cases.TWO_STAGES: chat stream: prompt too long",
        "test_baseline_streams::test_a_completion_stream_that_fails_before_its_first_token_is_a_bare_done"
        " + test_contract_streams::test_case_s05_a_completion_stream_of_nothing_is_a_failure",
    ),
    "streams-terminal-event": (
        "test_baseline_streams::test_a_responses_stream_that_fails_breaks_off"
        " + test_contract_streams::test_case_s11_a_response_that_fails_says_so_to_the_official_client",
        "test_baseline_streams::test_error_event_of_a_stream"
        " + test_contract_matrix::test_a_failure_is_told_alike_on_every_transport",
    ),
    "tokenize-template": (
        "test_baseline_http::test_a_broken_template_is_counted_as_a_server_error_although_the_client_gets_400"
        " + test_contract_http::test_counts_with_two_stages",
    ),
    "typed-errors-of-the-engine": (
        "raised: images: VLLMNotFoundError",
        "raised: images: OmniConflictError",
        "raised: images: OmniClientError503",
        "raised: chat: StageUnavailableError",
    ),
    "undecodable-message": ("test_contract_stages::test_a_failing_request_harms_no_neighbour",),
    "unknown-model-diffusion-chat": ("cases.ONE_STAGE: chat: unknown model",),
    "unknown-model-images": ("cases.ONE_STAGE: images: unknown model", "cases.TWO_STAGES: edits: unknown model"),
    "unreadable-bodies": (
        "cases.TWO_STAGES: invocations: nested too deeply",
        "test_contract_http::test_a_body_that_is_no_request_is_a_400_that_does_not_quote_it",
    ),
    "video-content": (
        "test_contract_videos::test_the_content_of_a_failed_job_is_its_error",
        "test_contract_videos::test_the_content_of_a_running_job_is_a_conflict",
    ),
    "video-jobs": (
        "test_contract_videos::test_stock_answered_for_a_failed_job_as_if_the_request_had_failed"
        " + test_a_failed_job_shows_its_error",
    ),
    "video-media": (
        "test_contract_videos.REQUESTS: truncated image",
        "test_contract_videos.REQUESTS: video that is none",
        "test_contract_videos::test_stock_took_every_failing_source_for_the_clients + test_case_m15_media_behind_a_url",
    ),
    "video-requests": (
        "test_contract_videos.REQUESTS: unknown model",
        "test_contract_videos.REQUESTS: size of nothing",
        "test_contract_videos.REQUESTS: length of 400 digits",
        "test_contract_videos.REQUESTS: codec option that the encoder does not know",
    ),
    "video-sync-failures": (
        "test_contract_videos.FAILURES: the engine's own timeout",
        "test_contract_videos.FAILURES: a conflict",
        "test_contract_videos.FAILURES: a client error with a server's status",
        "test_contract_control::test_the_deadline_of_a_video_that_is_waited_for",
    ),
    "voices": (
        "test_contract_speech::test_a_full_store_of_voices_is_a_conflict",
        "test_contract_speech::test_a_stored_voice_that_is_spoilt_is_the_servers_failure",
        "test_contract_speech.WRONG: voices: embedding nested too deep",
    ),
}
"""Fragment of a changed status → what shows it on the real server, as above."""

REFERENCES = sorted(
    {reference for table in (ROWS, BEYOND, FRAGMENTS) for references in table.values() for reference in references}
)


def functions_of(module: str) -> set[str]:
    tree = ast.parse((HERE / f"{module}.py").read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_changed_status_is_shown() -> None:
    fragments = (HERE.parents[1] / "newsfragments").rglob("*.status-change.md")
    assert sorted(FRAGMENTS) == sorted(
        path.name.removeprefix("+").removesuffix(".status-change.md") for path in fragments
    )


@pytest.mark.parametrize("reference", [each for each in REFERENCES if "::" not in each])
def test_the_answer_that_is_referred_to_changes(reference: str) -> None:
    table, _, name = reference.partition(": ")
    if table == "raised":
        route, _, exception = name.partition(": ")
        before, after = STOCK[route, "front"][exception], MIGRATED[exception]
    elif table == "place":
        assert name in PLACES
        return
    elif table == "unavailable":
        assert WITHOUT_A_HANDLER[name].type != "ServiceUnavailableError"
        return
    else:
        module, _, attribute = table.partition(".")
        [case] = [case for case in getattr(importlib.import_module(module), attribute) if case.title == name]
        before, after = case.was, case.now
    assert (before.status, before.type, before.param) != (after.status, after.type, after.param)


@pytest.mark.parametrize("reference", [each for each in REFERENCES if "::" in each])
def test_the_tests_that_are_referred_to_are_there(reference: str) -> None:
    module = ""
    for each in reference.split(" + "):
        named, _, test = each.rpartition("::")
        module = named or module
        assert test in functions_of(module), each
