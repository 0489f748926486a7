# SPDX-License-Identifier: Apache-2.0
"""Phase `requests`: rollout sessions, sleep and wake-up, models, and what controls the server."""

from collections.abc import Mapping

import libcst as cst

from vllm_omni_errors.migrate.rewrite import Rewrite, code
from vllm_omni_errors.migrate.rewrites.shapes import (
    AddArgument,
    Decorate,
    InsertStatements,
    RemoveDefinitions,
    ReplaceBranch,
    ReplaceStatement,
    StopTranslating,
    WrapCallee,
)

API_SERVER = "entrypoints/openai/api_server.py"
ROLLOUT = "entrypoints/openai/serving_rl_rollout.py"
ENGINE_CLIENT = "entrypoints/async_omni.py"

REVIEWED: tuple[str, ...] = (
    "close_rollout_session",
    "create_rollout_session",
    "health",
    "omni_sleep",
    "omni_wakeup",
    "reset_rollout_session",
    "rollout_session_status",
    "rollout_step",
    "show_available_models",
    "start_profile",
    "stop_profile",
)
"""Routes whose own errors are all typed: a raw exception on them is 500."""


_NO_SESSION = "The rollout session does not exist; create one with POST /v1/realtime/sessions."


class _Control(Rewrite):
    phase = "requests"


# ---- rollout sessions ----------------------------------------------------------------------------------------------


class SessionCreationPropagates(_Control, StopTranslating):
    """Any `ValueError` of making a session was the client's; the check of its model says itself what is wrong."""

    module = API_SERVER
    function = "create_rollout_session"
    clauses = (("ValueError",), ("RolloutSessionCapacityError",))
    keep = (("RolloutSessionCapacityError",),)
    before = """
        async def create_rollout_session(body):
            try:
                return await create(body)
            except ValueError as exc:
                raise HTTPException(400, str(exc)) from exc
            except RolloutSessionCapacityError as exc:
                raise Full from exc
    """
    after = """
        async def create_rollout_session(body):
            try:
                return await create(body)
            except RolloutSessionCapacityError as exc:
                raise Full from exc
    """


class StepsRaise(_Control):
    """A step that was not taken was an answer like any other, whose own code said what the status should have been."""

    module = ROLLOUT
    hits = 5
    imports = (
        ("fastapi", "HTTPException"),
        ("vllm.exceptions", "VLLMNotFoundError"),
        ("vllm.exceptions", "VLLMValidationError"),
    )
    before = """
        class Rollout:
            def step(self, request):
                if request.session is None:
                    return self._error_response(request, "session_not_found", "no session")
                if request.closed:
                    return self._error_response(request, "session_closed", "closed")
                if request.late:
                    code = "step_already_committed"
                    message = "late"
                else:
                    code = "step_out_of_order"
                    message = "early"
                return self._error_response(request, code, message)
    """
    after = f"""
        from fastapi import HTTPException
        from vllm.exceptions import VLLMNotFoundError, VLLMValidationError


        class Rollout:
            def step(self, request):
                if request.session is None:
                    raise VLLMNotFoundError("{_NO_SESSION}")
                if request.closed:
                    raise HTTPException(status_code=410, detail="The rollout session is closed.")
                if request.late:
                    message = "late"
                else:
                    message = "early"
                raise VLLMValidationError(message, parameter="step_id")
    """

    def leave_Return(self, original_node: cst.Return, updated_node: cst.Return) -> cst.Return | cst.Raise:
        call = original_node.value
        if not isinstance(call, cst.Call) or code(call.func) != "self._error_response":
            return updated_node
        self.found += 1
        kind, message = (code(argument.value) for argument in call.args[-2:])
        raised = _STEP_ERRORS.get(kind, f'VLLMValidationError({message}, parameter="step_id")')
        return cst.Raise(exc=cst.parse_expression(raised))

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        if not code(original_node).strip().startswith('code = "step_'):
            return updated_node
        self.found += 1
        return cst.RemoveFromParent()


_STEP_ERRORS = {
    '"session_not_found"': f'VLLMNotFoundError("{_NO_SESSION}")',
    '"session_closed"': 'HTTPException(status_code=410, detail="The rollout session is closed.")',
}
"""Code of the rollout protocol → what is raised for it; any other is about the number of the step."""


class StepPropagates(_Control, StopTranslating):
    """A step whose inference failed, on a dead engine too, was HTTP 200 with the raw text of the failure."""

    module = ROLLOUT
    function = "ServingRLRollout._run_step"
    clauses = (("ValueError", "OmniClientError"), ("Exception",))
    before = """
        async def step(self):
            try:
                video = await self.infer()
            except (ValueError, OmniClientError) as exc:
                return self.failed("invalid_request", str(exc))
            except Exception as exc:
                return self.failed("inference_error", str(exc))
            return video
    """
    after = """
        async def step(self):
            video = await self.infer()
            return video
    """


class StepResponseIsSuccess(_Control, ReplaceBranch):
    """What came back from a step with an error got its status in the route."""

    module = API_SERVER
    function = "rollout_step"
    test = "response.error is not None"
    before = """
        async def rollout_step(body):
            response = await step(body)
            if response.error is not None:
                return JSONResponse(response, status_code=choose(response.error.code))
            return response
    """
    after = """
        async def rollout_step(body):
            response = await step(body)
            return response
    """


class NoStepErrors(_Control, RemoveDefinitions):
    """Errors of a step are raised; nothing makes an answer of them any more."""

    module = ROLLOUT
    names = ("ServingRLRollout._error_response",)
    before = """
        class ServingRLRollout:
            def step(self):
                return self.run()

            def _error_response(self, error):
                return error
    """
    after = """
        class ServingRLRollout:
            def step(self):
                return self.run()
    """


class StepSeed(_Control, InsertStatements):
    """A seed that is no number failed where the engine's request is built, as the server's mistake."""

    module = ROLLOUT
    function = "ServingRLRollout._infer_world_model"
    before_assignment = "request"
    imports = (("vllm_omni_errors.seams", "check_integer"),)
    new = 'check_integer(obs.get("seed"), parameter="observation.extra.seed")'
    before = """
        class Rollout:
            async def infer(self, obs):
                request = self.build(obs)
                return await self.run(request)
    """
    after = """
        from vllm_omni_errors.seams import check_integer


        class Rollout:
            async def infer(self, obs):
                check_integer(obs.get("seed"), parameter="observation.extra.seed")
                request = self.build(obs)
                return await self.run(request)
    """


# ---- sleep, wake-up, profiling -------------------------------------------------------------------------------------


class ControlCallTimeout(_Control, WrapCallee):
    """A control call that the engine did not answer was an unknown failure."""

    module = ENGINE_CLIENT
    function = "AsyncOmni.collective_rpc"
    callee = "self.engine.collective_rpc_async"
    wrapper = "answers_in_time"
    imports = (("vllm_omni_errors.control", "answers_in_time"),)
    before = """
        class AsyncOmni:
            async def collective_rpc(self, method):
                return await self.engine.collective_rpc_async(method=method)
    """
    after = """
        from vllm_omni_errors.control import answers_in_time


        class AsyncOmni:
            async def collective_rpc(self, method):
                return await answers_in_time(self.engine.collective_rpc_async)(method=method)
    """


class SleepRestores(_Control, Decorate):
    """After a failed sleep every later request waited, for ever."""

    module = ENGINE_CLIENT
    function = "AsyncOmni.sleep"
    decorator = "restores_admission"
    imports = (("vllm_omni_errors.control", "restores_admission"),)
    before = """
        class AsyncOmni:
            async def sleep(self):
                self._paused = True
                await self.stop()
    """
    after = """
        from vllm_omni_errors.control import restores_admission


        class AsyncOmni:
            @restores_admission
            async def sleep(self):
                self._paused = True
                await self.stop()
    """


class PauseIsAlone(_Control, Decorate):
    """A sleep that failed undid a pause that came meanwhile."""

    module = ENGINE_CLIENT
    function = "AsyncOmni.pause_generation"
    decorator = "one_at_a_time"
    imports = (("vllm_omni_errors.control", "one_at_a_time"),)
    before = """
        class AsyncOmni:
            async def pause_generation(self):
                self._paused = True
    """
    after = """
        from vllm_omni_errors.control import one_at_a_time


        class AsyncOmni:
            @one_at_a_time
            async def pause_generation(self):
                self._paused = True
    """


class CallArguments(_Control, InsertStatements):
    """Named arguments of a call that are no object ended the orchestrator, and with it the whole server."""

    module = ENGINE_CLIENT
    function = "AsyncOmni.collective_rpc"
    new = "check_arguments(kwargs)"
    imports = (("vllm_omni_errors.control", "check_arguments"),)
    before = """
        class AsyncOmni:
            async def collective_rpc(self, method, kwargs):
                return await self.ask(method, kwargs)
    """
    after = """
        from vllm_omni_errors.control import check_arguments


        class AsyncOmni:
            async def collective_rpc(self, method, kwargs):
                check_arguments(kwargs)
                return await self.ask(method, kwargs)
    """


class SleepIsRecorded(_Control, InsertStatements):
    """If a stage of another kind failed after it, a language stage that slept was not known to, and was never woken."""

    module = ENGINE_CLIENT
    function = "AsyncOmni.sleep"
    after_assignment = "self._hold_admission_until_resume"
    new = """
        self._record_stage_sleep(ar_stage_ids, [CuMemTag.WEIGHTS.value, CuMemTag.KV_CACHE.value])
        self._level2_sleeping = self._level2_sleeping or level == 2
    """
    before = """
        class AsyncOmni:
            async def sleep(self, level, ar_stage_ids):
                self._hold_admission_until_resume = True
                await self.stop(ar_stage_ids)
    """
    after = """
        class AsyncOmni:
            async def sleep(self, level, ar_stage_ids):
                self._hold_admission_until_resume = True
                self._record_stage_sleep(ar_stage_ids, [CuMemTag.WEIGHTS.value, CuMemTag.KV_CACHE.value])
                self._level2_sleeping = self._level2_sleeping or level == 2
                await self.stop(ar_stage_ids)
    """


class SleepLevel(_Control, InsertStatements):
    """A level that no message can hold ended the whole server."""

    module = ENGINE_CLIENT
    function = "AsyncOmni.sleep"
    new = "check_level(level)"
    imports = (("vllm_omni_errors.control", "check_level"),)
    before = """
        class AsyncOmni:
            async def sleep(self, level):
                await self.stop(level)
    """
    after = """
        from vllm_omni_errors.control import check_level


        class AsyncOmni:
            async def sleep(self, level):
                check_level(level)
                await self.stop(level)
    """


class _HasADeadline(_Control, AddArgument):
    """A sleep or a wake-up waited for a frozen stage for ever, whatever the deadline, and every request with it."""

    module = ENGINE_CLIENT
    callee = "self._engine_core_rpc"
    argument = "timeout=limit_s()"
    imports = (("vllm_omni_errors.stage_deadline", "limit_s"),)
    before = """
        class AsyncOmni:
            async def call(self, stages):
                await self._engine_core_rpc("call", stage_ids=stages)
    """
    after = """
        from vllm_omni_errors.stage_deadline import limit_s


        class AsyncOmni:
            async def call(self, stages):
                await self._engine_core_rpc("call", stage_ids=stages, timeout=limit_s())
    """


class _DiffusionHasADeadline(_HasADeadline):
    callee = "self.collective_rpc"
    before = """
        class AsyncOmni:
            async def call(self, stages):
                await self.collective_rpc("call", stage_ids=stages)
    """
    after = """
        from vllm_omni_errors.stage_deadline import limit_s


        class AsyncOmni:
            async def call(self, stages):
                await self.collective_rpc("call", stage_ids=stages, timeout=limit_s())
    """


class LanguageSleepHasADeadline(_HasADeadline):
    __doc__ = _HasADeadline.__doc__
    function = "AsyncOmni.sleep"


class LanguageWakeUpHasADeadline(_HasADeadline):
    __doc__ = _HasADeadline.__doc__
    function = "AsyncOmni.wake_up"


class DiffusionSleepHasADeadline(_DiffusionHasADeadline):
    __doc__ = _HasADeadline.__doc__
    function = "AsyncOmni._sleep_diffusion"


class DiffusionWakeUpHasADeadline(_DiffusionHasADeadline):
    __doc__ = _HasADeadline.__doc__
    function = "AsyncOmni._wake_diffusion"


class WakeUpAsksTheEngine(_Control, ReplaceStatement):
    """A stage that a failed sleep left asleep was taken for awake, and could not be woken."""

    module = API_SERVER
    function = "omni_wakeup"
    targets = ("sleeping_set",)
    new = "sleeping_set = stages_asleep(engine_client, raw_request.app.state.sleeping_stages)"
    imports = (("vllm_omni_errors.control", "stages_asleep"),)
    before = """
        async def omni_wakeup(raw_request, engine_client):
            sleeping_set = raw_request.app.state.sleeping_stages
            return sleeping_set
    """
    after = """
        from vllm_omni_errors.control import stages_asleep


        async def omni_wakeup(raw_request, engine_client):
            sleeping_set = stages_asleep(engine_client, raw_request.app.state.sleeping_stages)
            return sleeping_set
    """


class WakeUpAdmits(_Control, InsertStatements):
    """After a language stage had slept and was woken, every request waited for a call that no route makes."""

    module = API_SERVER
    function = "omni_wakeup"
    after_assignment = "acks"
    new = "await admits_after_wake_up(raw_request.app, engine_client)"
    imports = (("vllm_omni_errors.control", "admits_after_wake_up"),)
    before = """
        async def omni_wakeup(raw_request, engine_client):
            acks = await engine_client.wake_up()
            return acks
    """
    after = """
        from vllm_omni_errors.control import admits_after_wake_up


        async def omni_wakeup(raw_request, engine_client):
            acks = await engine_client.wake_up()
            await admits_after_wake_up(raw_request.app, engine_client)
            return acks
    """


class _EveryStageSleeps(_Control, WrapCallee):
    """A stage that failed, or was gone, was answered as a success, and every later request waited, for ever."""

    module = ENGINE_CLIENT
    function = "AsyncOmni.sleep"
    wrapper = "done_by_every_stage"
    imports = (("vllm_omni_errors.control", "done_by_every_stage"),)


class LanguageStagesSleep(_EveryStageSleeps):
    __doc__ = _EveryStageSleeps.__doc__
    callee = "self._engine_core_rpc"
    before = """
        class AsyncOmni:
            async def sleep(self, stages):
                return await self._engine_core_rpc("sleep", stages)
    """
    after = """
        from vllm_omni_errors.control import done_by_every_stage


        class AsyncOmni:
            async def sleep(self, stages):
                return await done_by_every_stage(self._engine_core_rpc)("sleep", stages)
    """


class DiffusionStagesSleep(_EveryStageSleeps):
    __doc__ = _EveryStageSleeps.__doc__
    callee = "self._sleep_diffusion"
    before = """
        class AsyncOmni:
            async def sleep(self, stages):
                return await self._sleep_diffusion(stages)
    """
    after = """
        from vllm_omni_errors.control import done_by_every_stage


        class AsyncOmni:
            async def sleep(self, stages):
                return await done_by_every_stage(self._sleep_diffusion)(stages)
    """


class DiffusionStagesWakeUp(_Control, WrapCallee):
    """A stage that could not be woken was taken for awake."""

    module = ENGINE_CLIENT
    function = "AsyncOmni.wake_up"
    callee = "self._wake_diffusion"
    wrapper = "done_by_every_stage_left"
    imports = (("vllm_omni_errors.control", "done_by_every_stage_left"),)
    before = """
        class AsyncOmni:
            async def wake_up(self, stages):
                return await self._wake_diffusion(stages)
    """
    after = """
        from vllm_omni_errors.control import done_by_every_stage_left


        class AsyncOmni:
            async def wake_up(self, stages):
                return await done_by_every_stage_left(self._wake_diffusion)(stages)
    """


class _AnyStage(_Control, WrapCallee):
    """What no stage could do was a success."""

    module = ENGINE_CLIENT
    callee = "self.collective_rpc"
    wrapper = "done_by_any_stage"
    imports = (("vllm_omni_errors.control", "done_by_any_stage"),)
    before = """
        class AsyncOmni:
            async def load(self, adapter):
                return await self.collective_rpc("load", adapter)
    """
    after = """
        from vllm_omni_errors.control import done_by_any_stage


        class AsyncOmni:
            async def load(self, adapter):
                return await done_by_any_stage(self.collective_rpc)("load", adapter)
    """


class AdapterIsLoaded(_AnyStage):
    """An adapter that no stage could load was loaded successfully."""

    function = "AsyncOmni.add_lora"


class AdapterIsRemoved(_AnyStage):
    __doc__ = _AnyStage.__doc__
    function = "AsyncOmni.remove_lora"


class AdapterIsPinned(_AnyStage):
    __doc__ = _AnyStage.__doc__
    function = "AsyncOmni.pin_lora"


class ProfileStarts(_AnyStage):
    __doc__ = _AnyStage.__doc__
    function = "AsyncOmni.start_profile"


class ProfileStops(_AnyStage):
    __doc__ = _AnyStage.__doc__
    function = "AsyncOmni.stop_profile"


class _ProfilePropagates(_Control, StopTranslating):
    """A failure of the profiler was quoted to the client."""

    module = API_SERVER
    clauses = (("Exception",),)
    before = """
        async def profile(engine):
            try:
                await engine.profile()
                return done()
            except Exception as e:
                raise HTTPException(500, str(e))
    """
    after = """
        async def profile(engine):
            await engine.profile()
            return done()
    """


class StartProfilePropagates(_ProfilePropagates):
    __doc__ = _ProfilePropagates.__doc__
    function = "start_profile"


class StopProfilePropagates(_ProfilePropagates):
    __doc__ = _ProfilePropagates.__doc__
    function = "stop_profile"


class _ProfiledStages(_Control, InsertStatements):
    """A stage that is not there was ignored, and nothing was profiled successfully."""

    module = ENGINE_CLIENT
    imports = (("vllm_omni_errors.control", "check_stages"),)
    new = "check_stages(stages, len(self.engine.stage_configs))"
    before = """
        class AsyncOmni:
            async def profile(self, stages):
                return await self.collective_rpc("profile", stage_ids=stages)
    """
    after = """
        from vllm_omni_errors.control import check_stages


        class AsyncOmni:
            async def profile(self, stages):
                check_stages(stages, len(self.engine.stage_configs))
                return await self.collective_rpc("profile", stage_ids=stages)
    """


class StartProfileStages(_ProfiledStages):
    __doc__ = _ProfiledStages.__doc__
    function = "AsyncOmni.start_profile"


class StopProfileStages(_ProfiledStages):
    __doc__ = _ProfiledStages.__doc__
    function = "AsyncOmni.stop_profile"


DECIDED: Mapping[str, tuple[str, ...]] = {
    API_SERVER: ("*_rollout_session", "_rl_rollout_serving", "omni_sleep", "omni_wakeup", "rollout_session_status",
                 "st*_profile"),
    ROLLOUT: ("*",),
    ENGINE_CLIENT: ("AsyncOmni._split_stage_ids_by_type", "AsyncOmni.wake_up"),
    "entrypoints/openai/models/serving.py": ("*",),
}  # fmt: skip
"""Functions whose decided sites change."""

CONTROL: tuple[type[Rewrite], ...] = (
    SessionCreationPropagates,
    StepPropagates,
    StepsRaise,
    StepResponseIsSuccess,
    NoStepErrors,
    StepSeed,
    ControlCallTimeout,
    SleepRestores,
    PauseIsAlone,
    CallArguments,
    SleepIsRecorded,
    SleepLevel,
    LanguageSleepHasADeadline,
    LanguageWakeUpHasADeadline,
    DiffusionSleepHasADeadline,
    DiffusionWakeUpHasADeadline,
    WakeUpAsksTheEngine,
    WakeUpAdmits,
    LanguageStagesSleep,
    DiffusionStagesSleep,
    DiffusionStagesWakeUp,
    AdapterIsLoaded,
    AdapterIsRemoved,
    AdapterIsPinned,
    ProfileStarts,
    ProfileStops,
    StartProfilePropagates,
    StopProfilePropagates,
    StartProfileStages,
    StopProfileStages,
)
