# SPDX-License-Identifier: MIT
"""What is done about the keys of resources (8.1) that Waldur wants something of.

wanted            on the cluster      reported to Waldur        where the backend makes no keys
create, rotate    IssueKey            ReportKey                 RefuseKey, with what the owner reads
pause, resume     PauseKey, ...       ConfirmKey                RefuseKey
update            nothing             RefuseKey                 RefuseKey
delete            EndKey              ConfirmKeyDeletion        ConfirmKeyDeletion: there is nothing to withdraw

A key whose resource has no account yet waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from agent.core.actions import Action
from agent.core.key_actions import ConfirmKey, EndKey, IssueKey, PauseKey, ReportKey, ResumeKey
from agent.core.model import KeyCommand
from agent.core.waldur_actions import ConfirmKeyDeletion, RefuseKey

REFUSAL = "The site's cluster has no keys: Waldur asked to {} this one, which cannot be carried out."
NO_UPDATE = "The site's cluster keeps no limits or models of single keys: this change cannot be carried out."
FAILED = "The site's cluster could not {} this key. The operators of the site find the reason in their log."
REPORTED_STATES = {"pause": "paused", "resume": "ok"}


def actions(
    commands: Iterable[KeyCommand], accounts: Mapping[str, str], *, makes_keys: bool
) -> Iterator[Action]:
    """Yield what is done with each key that waits for something, on the cluster first. `accounts`: of the resources,
    by uuid.
    """
    for each in commands:
        reason = f"resource {each.resource_uuid}"
        if not each.action:
            continue  # a guess could end a secret that is in use
        if each.action == "delete" and not (makes_keys and each.client_id):
            yield ConfirmKeyDeletion(key=each.uuid, reason=reason)
        elif not makes_keys:
            yield RefuseKey(key=each.uuid, message=REFUSAL.format(each.action), reason=reason)
        elif account := accounts.get(each.resource_uuid, ""):
            yield from _carried_out(each, account, reason)


def _carried_out(each: KeyCommand, account: str, reason: str) -> Iterator[Action]:
    # The same name at every try: what a crash has left is replaced, and no second key comes to be.
    name = each.client_id or each.uuid
    match each.action:
        case "create" | "rotate":
            yield IssueKey(key=each.uuid, resource=each.resource_uuid, account=account, client_id=name,
                           replaces=each.action == "rotate", reason=f"Waldur asks to {each.action} it")  # fmt: skip
            yield ReportKey(key=each.uuid, reason=reason)
        case "pause" | "resume":
            kind = PauseKey if each.action == "pause" else ResumeKey
            yield kind(key=each.uuid, resource=each.resource_uuid, account=account, client_id=name)
            yield ConfirmKey(key=each.uuid, state=REPORTED_STATES[each.action], reason=reason)
        case "delete":
            yield EndKey(key=each.uuid, resource=each.resource_uuid, account=account, client_id=name)
            yield ConfirmKeyDeletion(key=each.uuid, reason=reason)
        case "update":
            yield RefuseKey(key=each.uuid, message=NO_UPDATE, reason=reason)
        case _:
            yield RefuseKey(key=each.uuid, message=FAILED.format(each.action), reason=reason)
