# SPDX-License-Identifier: MIT
"""`diagnose-account ACCOUNT`: the cluster, Waldur and the policy side by side, and the commands that correct it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agent.cli.options import number, print_json, select_offerings
from agent.cli.output import echo
from agent.cli.settings import load_settings
from agent.core.periodic import LimitType
from agent.run.diagnosis import account as diagnosis
from agent.run.diagnosis.account import AccountDiagnosis, Comparison, Conversion
from agent.run.site import connect

RULE, THIN = "=" * 80, "-" * 80
USERS_SHOWN = 10
Line = tuple[str, str | None]


def command(
    account_name: str,
    config_file: Path | None,
    offering_uuid: str | None,
    as_json: bool,
    verbose: bool,
    is_plain: bool,
) -> int:
    settings = load_settings(config_file)
    if verbose:
        logging.getLogger().setLevel(logging.DEBUG)
    offering = diagnosis.choose(select_offerings(settings, offering_uuid), account_name)
    site = connect(settings, offering, diagnosis.MODE)
    try:
        found = diagnosis.diagnose(site, account_name)
    finally:
        site.client.close()
    if as_json:
        print_json(document(found))
    else:
        for text, colour in _lines(found, verbose=verbose):
            echo(text, fg=None if is_plain else colour)
    return 0 if found.status == "ok" else 1


def document(found: AccountDiagnosis) -> dict[str, Any]:
    """Return the diagnosis for scripts, with the keys of the reference in its order, and ours after them."""
    return {
        "account_name": found.account,
        "overall_status": found.status,
        "slurm_info": _cluster_info(found),
        "waldur_info": _waldur_info(found),
        "policy_info": _policy_info(found),
        "expected_settings": _expected(found),
        "comparisons": [_comparison(each, found) for each in found.comparisons],
        "fix_commands": list(found.commands),
        "unit_conversions": [_conversion(each, found.advice.unit) for each in found.conversions],
        "held": [{"id": plan.id, "reason": plan.reason} for plan in found.held],
        "skipped": [{"action": each.action.line(), "reason": each.sentence} for each in found.refused],
        "notes": list(found.notes),
        "errors": list(found.errors),
    }


def _cluster_info(found: AccountDiagnosis) -> dict[str, Any]:
    observed, own = found.observed, found.periodic
    limits = own.limits if own else {}
    absent = f"Account '{found.account}' not found in {found.advice.product} cluster"
    return {
        "exists": observed is not None,
        "name": found.account,
        "description": None,
        "organization": None,
        "parent_account": observed.parent if observed else None,
        "fairshare": own.fairshare if own else None,
        "qos": ",".join(sorted(found.snapshot.qos_of(found.account)))
        if found.snapshot and observed
        else None,
        "grp_tres_mins": _texts(observed.limits) if observed else None,
        "max_tres_mins": _texts(limits.get(LimitType.MAX_TRES_MINS, {})),
        "grp_tres": _texts(limits.get(LimitType.GRP_TRES, {})),
        "users": sorted(found.snapshot.users_of(found.account)) if found.snapshot else [],
        "error": found.cluster_error or (None if observed or found.snapshot is None else absent),
    }


def _waldur_info(found: AccountDiagnosis) -> dict[str, Any]:
    r = found.resource
    absent = f"No Waldur resource found with backend_id '{found.account}'"
    return {
        "exists": r is not None,
        "uuid": r.uuid if r else None,
        "name": r.name if r else None,
        "state": str(r.state) if r else None,
        "offering_uuid": found.offering.uuid,
        "offering_name": found.offering.name,
        "project_uuid": r.project_uuid if r else None,
        "project_name": r.project_name if r else None,
        "customer_uuid": r.customer_uuid if r else None,
        "customer_name": r.customer_name if r else None,
        "limits": dict(r.limits) if r else None,
        "backend_id": r.backend_id if r else None,
        "downscaled": r.downscaled if r else None,
        "paused": r.paused if r else None,
        "error": found.waldur_error or (None if r else absent),
    }


POLICY_FIELDS = (
    "period", "period_name", "limit_type", "tres_billing_enabled", "tres_billing_weights", "grace_ratio",
    "carryover_factor", "carryover_enabled", "raw_usage_reset", "qos_strategy",
)  # fmt: skip


def _policy_info(found: AccountDiagnosis) -> dict[str, Any]:
    policy = found.policy
    values: Mapping[str, Any] = policy.values if policy else {}
    absent = "No SLURM periodic usage policy found for this offering"
    limits = values.get("component_limits_set") or []
    return {
        "exists": policy is not None,
        "uuid": policy.uuid if policy else None,
        **{name: values.get(name) for name in POLICY_FIELDS},
        "component_limits": [
            {"type": each.get("type"), "limit": each.get("limit")}
            for each in limits
            if isinstance(each, dict)
        ],
        "error": found.policy_error or (None if policy else absent),
    }


def _expected(found: AccountDiagnosis) -> dict[str, Any] | None:
    if not found.comparisons:
        return None
    by_name = {each.name: each for each in found.comparisons}
    limits = {
        name.removeprefix(f"{found.limit_type}[").removesuffix("]"): each.expected
        for name, each in by_name.items()
        if name.startswith(f"{found.limit_type}[")
    }
    share = by_name.get("fairshare")
    return {
        "fairshare": int(share.expected) if share and share.expected else None,
        "qos": by_name["qos"].expected,
        "limits": {tres: int(value) for tres, value in limits.items() if value is not None},
        "limit_type": found.limit_type,
        "reasoning": {each.name: each.reason for each in found.comparisons if each.reason},
    }


def _comparison(each: Comparison, found: AccountDiagnosis) -> dict[str, Any]:
    unit = next((c for c in found.conversions if each.name == f"{found.advice.limit}[{c.tres}]"), None)
    return {
        "field": each.name,
        "actual": each.actual,
        "expected": each.expected,
        "status": "ok" if each.agrees else "mismatch",
        "reason": each.reason,
        "fix_command": "\n".join(each.commands) or None,
        "waldur_value": unit.waldur_value if unit else None,
        "waldur_unit": unit.waldur_unit if unit else None,
        "slurm_unit": found.advice.unit if unit else None,
        "unit_factor": unit.factor if unit else None,
    }


def _conversion(each: Conversion, unit: str) -> dict[str, Any]:
    return {
        "component_type": each.component,
        "waldur_unit": each.waldur_unit,
        "waldur_value": each.waldur_value,
        "slurm_unit": unit,
        "slurm_value": each.cluster_value,
        "unit_factor": each.factor,
        "conversion_note": _note(each, unit),
    }


def _note(each: Conversion, unit: str) -> str:
    return f"{each.waldur_value:g} {each.waldur_unit} -> {each.cluster_value} {unit}"


def _texts(values: Mapping[str, int]) -> dict[str, str] | None:
    return {name: str(value) for name, value in sorted(values.items())} or None


def _lines(found: AccountDiagnosis, *, verbose: bool) -> Iterator[Line]:
    """Yield the page, 80 columns wide as far as names allow, each line with its colour."""
    yield RULE, None
    yield f"{found.advice.product} Account Diagnostic: {found.account}", "cyan"
    yield RULE, None
    yield from _section(f"{found.advice.product.upper()} CLUSTER", _cluster_lines(found))
    yield from _section("WALDUR MASTERMIND", _waldur_lines(found))
    if (
        found.policy or found.periodic or found.advice.product == "SLURM"
    ):  # Waldur has these policies for SLURM only
        yield from _section("SLURM POLICY", _policy_lines(found))
    yield from _section("EXPECTED vs ACTUAL", _comparison_lines(found, verbose=verbose))
    if verbose and found.conversions:
        rows = (
            _row(each.component, f"{_note(each, found.advice.unit)} of {each.tres} (factor: {each.factor:g})")
            for each in found.conversions
        )
        yield from _section("UNIT CONVERSIONS", rows)
    if found.commands:
        yield from _section("REMEDIATION COMMANDS", ((f"  {c}", None) for c in found.commands))
    word = found.status.upper()
    issues = found.mismatches or len(found.held) + len(found.refused)
    said = f"OVERALL: {word} ({number(issues, 'issue')} found)" if word == "MISMATCH" else f"OVERALL: {word}"
    yield said, "green" if word == "OK" else "red"
    yield RULE, None


def _section(title: str, lines: Iterator[Line]) -> Iterator[Line]:
    yield title, "cyan"
    yield THIN, None
    yield from lines
    yield "", None


def _row(label: str, value: object, colour: str | None = None) -> Line:
    return f"  {label + ':':<20}{value}", colour


def _cluster_lines(found: AccountDiagnosis) -> Iterator[Line]:
    info = _cluster_info(found)
    yield _row("Account Exists", "Yes" if info["exists"] else "No", None if info["exists"] else "red")
    if info["exists"]:
        yield _row("Parent", info["parent_account"])
        if found.periodic or found.advice.product == "SLURM":
            yield _row("Fairshare", info["fairshare"] or "(not set)")
        yield _row("QoS", info["qos"] or "(none)")
        yield _row(found.advice.limit, _pairs(info["grp_tres_mins"]))
        for label, key in (("MaxTRESMins", "max_tres_mins"), ("GrpTRES", "grp_tres")):
            if info[key]:
                yield _row(label, _pairs(info[key]))
        users = info["users"]
        more = f", ... and {len(users) - USERS_SHOWN} more" if len(users) > USERS_SHOWN else ""
        yield _row("Users", ", ".join(users[:USERS_SHOWN]) + more if users else "(none)")
    if info["error"]:
        yield _row("Error", info["error"], "red")


def _waldur_lines(found: AccountDiagnosis) -> Iterator[Line]:
    info, resource = _waldur_info(found), found.resource
    yield _row("Resource Found", "Yes" if resource else "No", None if resource else "red")
    if resource:
        yield _row("Resource UUID", resource.uuid)
        yield _row("Resource Name", resource.name)
        yield _row("State", resource.state)
        yield _row("Offering", found.offering.name)
        yield _row("Project", resource.project_name or resource.project_uuid)
        yield _row("Organization", resource.customer_name or resource.customer_uuid)
        limits = ", ".join(f"{name}={value}" for name, value in sorted(resource.limits.items()) if value)
        yield _row("Limits", limits or "(none)")
        if resource.downscaled:
            yield _row("Downscaled", "Yes", "yellow")
        if resource.paused:
            yield _row("Paused", "Yes", "yellow")
    if info["error"]:
        yield _row("Error", info["error"], "red")


def _policy_lines(found: AccountDiagnosis) -> Iterator[Line]:
    info = _policy_info(found)
    yield _row("Policy Found", "Yes" if info["exists"] else "No")
    if info["exists"]:
        yield _row("Period", info["period_name"] or info["period"])
        yield _row("Limit Type", info["limit_type"])
        yield _row("TRES Billing", "Enabled" if info["tres_billing_enabled"] else "Disabled")
        if info["tres_billing_weights"]:
            yield _row("Billing Weights", _pairs(info["tres_billing_weights"]))
        if isinstance(info["grace_ratio"], int | float):
            share = f"{info['grace_ratio']:.0%}"
            yield _row("Grace Ratio", f"{info['grace_ratio']} ({share} overconsumption allowed)")
        if info["carryover_factor"] is not None:
            yield _row("Carryover Factor", f"{info['carryover_factor']}%")
        yield _row("Carryover", "Enabled" if info["carryover_enabled"] else "Disabled")
        yield _row("QoS Strategy", info["qos_strategy"])
    if info["error"]:
        yield _row("Note", info["error"])


def _comparison_lines(found: AccountDiagnosis, *, verbose: bool) -> Iterator[Line]:
    for each in found.comparisons:
        actual, expected = (
            value if value is not None else "(not set)" for value in (each.actual, each.expected)
        )
        if each.agrees:
            yield f"  [OK]       {each.name}: {actual} == {expected}", "green"
        else:
            yield f"  [MISMATCH] {each.name}: {actual} != {expected}", "red"
        unit = next((c for c in found.conversions if each.name == f"{found.advice.limit}[{c.tres}]"), None)
        if verbose and each.reason:
            yield f"             Reason: {each.reason}", None
        if verbose and unit:
            yield (
                f"             Units: Waldur: {_note(unit, found.advice.unit)} (factor: {unit.factor:g})",
                None,
            )
    if not found.comparisons:
        yield "  nothing could be compared", "yellow"
    for plan in found.held:
        yield f"  held: plan {plan.short_id}: {plan.reason}; `approve {plan.short_id}` releases it", "yellow"
    for skipped in found.refused:
        yield f"  skipped: {skipped.action.line()}: {skipped.sentence}", "yellow"
    for note in found.notes:
        yield f"  note: {note}", "yellow"
    for error in found.errors:
        yield f"  error: {error}", "red"


def _pairs(values: Mapping[str, Any] | None) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted((values or {}).items())) or "(none)"
