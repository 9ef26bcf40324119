# SPDX-License-Identifier: MIT
"""Look at an account, at a person, at what a pass would do or at usage, and leave what is found in the state, for
pages of the console. Changes nothing else; what cannot be read is what is found.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.config.model import Mode
from agent.core.errors import SiteAgentError
from agent.core.overview import Look
from agent.run.diagnosis import account as accounts
from agent.run.diagnosis import person as people
from agent.run.diagnosis.account import AccountDiagnosis
from agent.run.preview.previews import preview
from agent.run.site import Site
from agent.run.usage import stored
from agent.run.usage import view as usage_view
from agent.state.hints import LOOKS, USAGES
from agent.waldur import resources

LINES_KEPT = 500
MONTHS = 12


def at_account(site: Site, resource_uuid: str) -> None:
    """Compare an account with what Waldur says, as `diagnose-account` does."""
    try:
        resource = resources.get(site.client, resource_uuid)
        found = accounts.diagnose(site, resource.backend_id)
        count = found.mismatches or len(found.held) + len(found.refused)
        verdict = f"{found.account}: {found.status}{f', {count} differences' if count else ''}"
        look = Look(verdict, found.status == "ok", tuple(_steps(found)), found.commands[:LINES_KEPT])
    except SiteAgentError as error:
        look = Look(str(error), is_fine=False)
    _leave(site, f"account:{resource_uuid}", look)


def at_person(site: Site, resource_uuid: str, person_uuid: str) -> None:
    """Follow the chain from a person's role to the limits on the cluster, as `explain` does."""
    try:
        found = people.explain(site, person_uuid, resources.get(site.client, resource_uuid))
        steps = tuple((each.name, each.found, each.broken) for each in found.links)
        look = Look(found.verdict, found.is_fine, steps, found.coming[:LINES_KEPT])
    except SiteAgentError as error:
        look = Look(str(error), is_fine=False)
    _leave(site, f"person:{resource_uuid}:{person_uuid}", look)


def at_plan(site: Site, mode: Mode) -> None:
    """Make the plan of a mode, as `plan` does."""
    try:
        found = preview(site, mode)
        lines = [action.render() for action in found.allowed.actions]
        steps = [(f"held as {each.short_id}", each.scope, each.reason) for each in found.held]
        steps += [("skipped", each.action.line(), each.sentence) for each in found.refused]
        steps += [("not planned", each.result, each.message) for each in found.unplanned]
        steps += [("note", note, "") for note in found.notes]
        kept = tuple(lines[:LINES_KEPT])
        verdict = f"A pass of {mode} would carry out {len(lines)} actions now."
        look = Look(verdict, not lines, tuple(steps[:LINES_KEPT]), kept, len(lines) - len(kept))
    except SiteAgentError as error:
        look = Look(str(error), is_fine=False)
    _leave(site, f"plan:{mode}", look)


def at_usage(site: Site) -> None:
    """Read the usage of the last months, as `usage` does."""
    try:
        found = stored.as_json(usage_view.view(site, MONTHS))
    except SiteAgentError as error:
        found = {"error": str(error)}
    USAGES.put(site.state_dir, site.offering.uuid, {"": found})


def _steps(found: AccountDiagnosis) -> Iterator[tuple[str, str, str]]:
    for each in found.comparisons:
        wrong = "" if each.agrees else f"should be {each.expected or 'not set'}: {each.reason}"
        yield each.name, each.actual or "not set", wrong
    for plan in found.held:
        yield f"held as {plan.short_id}", plan.scope, plan.reason
    for skipped in found.refused:
        yield "skipped", skipped.action.line(), skipped.sentence
    for note in found.notes:
        yield "note", note, ""
    for error in filter(None, (found.cluster_error, found.waldur_error, *found.errors)):
        yield "error", "", error


def _leave(site: Site, key: str, look: Look) -> None:
    LOOKS.put(site.state_dir, site.offering.uuid, {key: look})
