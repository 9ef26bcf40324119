# SPDX-License-Identifier: MIT
"""SLURM periodic usage policies: read, and the agent's reports on the commands it ran (8.x)."""

from __future__ import annotations

from simulator.api.filters import Filters, uuid_is
from simulator.rules import access, lookup
from simulator.rules.errors import bad_field
from simulator.rules.lookup import view_of
from simulator.server.routes import Call, Reply, Routes
from simulator.world.agent_records import CommandResult, PeriodicPolicy
from simulator.world.ages import Age
from simulator.world.clock import wire_time
from simulator.world.identifiers import as_uuid
from simulator.world.records import JsonObject

routes = Routes()

_PERIOD_NAMES = {1: "Total", 2: "Monthly", 3: "Quarterly", 4: "Annual"}
_DEFAULTS: JsonObject = {
    "actions": "request_slurm_resource_downscaling",
    "options": {},
    "organization_groups": [],
    "apply_to_all": True,
    "component_limits_set": [],
    "period": 3,
    "limit_type": "GrpTRESMins",
    "tres_billing_enabled": True,
    "tres_billing_weights": {"CPU": 0.015625, "Mem": 0.001953125, "GRES/gpu": 0.25},
    "carryover_factor": 50,
    "carryover_enabled": True,
    "grace_ratio": 0.2,
    "raw_usage_reset": True,
    "qos_strategy": "threshold",
}
_COLLECTION = "marketplace-slurm-periodic-usage-policies"


@routes.on("GET", f"{_COLLECTION}/", since=Age.V8_0)
def list_policies(call: Call) -> Reply:
    filters: Filters[PeriodicPolicy] = Filters(
        scope_uuid=uuid_is(lambda p: p.offering_uuid), offering_uuid=uuid_is(lambda p: p.offering_uuid)
    )
    mine = [p for p in call.store.policies if _sees(call, p)]
    return lookup.page_of(call, filters.apply(mine, call.query), lambda p: _policy_body(call, p))


@routes.on("GET", f"{_COLLECTION}/{{uuid}}/", since=Age.V8_0)
def get_policy(call: Call) -> Reply:
    return Reply(body=_policy_body(call, _policy(call)))


@routes.on("POST", f"{_COLLECTION}/{{uuid}}/report-command-result/", since=Age.V8_0)
def report_command_result(call: Call) -> Reply:
    policy = _policy(call)
    body = lookup.require_fields(call, "resource_uuid", "success")
    resource = call.store.resources.get(as_uuid(body["resource_uuid"]))
    if resource is None or resource.offering_uuid != policy.offering_uuid:
        raise bad_field("resource_uuid", "There is no such resource.")
    call.store.command_results.append(
        CommandResult(
            policy_uuid=policy.uuid,
            resource_uuid=resource.uuid,
            success=bool(body["success"]),
            error_message=call.text("error_message"),
            mode=call.text("mode") or "production",
            commands_executed=list(body.get("commands_executed") or []),
            received=call.store.clock.now(),
        )
    )
    return Reply(body={"detail": "The result is recorded."})


def _sees(call: Call, policy: PeriodicPolicy) -> bool:
    return access.provides(call.store, call.user, call.store.offerings[policy.offering_uuid])


def _policy(call: Call) -> PeriodicPolicy:
    return lookup.visible_row(call, call.store.policies, "SlurmPeriodicUsagePolicy", lambda p: _sees(call, p))


def _policy_body(call: Call, policy: PeriodicPolicy) -> JsonObject:
    view = view_of(call)
    offering = call.store.offerings[policy.offering_uuid]
    settings = _DEFAULTS | policy.settings
    body: JsonObject = {
        "uuid": policy.uuid,
        "url": view.link(_COLLECTION, policy.uuid),
        "scope": view.link("marketplace-provider-offerings", offering.uuid),
        "scope_name": offering.name,
        "scope_uuid": offering.uuid,
        "created": wire_time(policy.created),
        "created_by_full_name": "",
        "created_by_username": "",
        "has_fired": False,
        "fired_datetime": wire_time(policy.created),
        **settings,
        "period_name": _PERIOD_NAMES.get(settings["period"], ""),
        "warnings": [],
    }
    return body | {"affected_resources_count": 0} if call.age.at_least(Age.V8_1) else body
