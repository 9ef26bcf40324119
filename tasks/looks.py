# SPDX-License-Identifier: MIT
"""Tasks that only look: what a page of the console asks for, and may not read itself, is left in the state for it."""

from __future__ import annotations

import beat_schedule as table
from agent.config.model import Mode
from agent.run.diagnosis import looks
from tasks import sites
from tasks.app import app
from tasks.base import SiteTask, enqueue


@app.task(name="looks.account", bind=True)
def account(self: SiteTask, offering_uuid: str, resource_uuid: str) -> None:
    """Compare an account with what Waldur says."""
    with self.at_work(_key("account", offering_uuid, resource_uuid)):
        looks.at_account(sites.site(offering_uuid, Mode.MEMBERSHIP_SYNC), resource_uuid)


@app.task(name="looks.person", bind=True)
def person(self: SiteTask, offering_uuid: str, resource_uuid: str, person_uuid: str) -> None:
    """Follow the chain from a person's role to the limits on the cluster."""
    with self.at_work(_key("person", offering_uuid, resource_uuid, person_uuid)):
        looks.at_person(sites.site(offering_uuid, Mode.MEMBERSHIP_SYNC), resource_uuid, person_uuid)


@app.task(name="looks.plan", bind=True)
def plan(self: SiteTask, offering_uuid: str, mode_name: str) -> None:
    """Make the plan of a mode."""
    mode = Mode(mode_name)
    with self.at_work(_key("plan", offering_uuid, mode)):
        looks.at_plan(sites.site(offering_uuid, mode), mode)


@app.task(name="looks.usage", bind=True)
def usage(self: SiteTask, offering_uuid: str) -> None:
    """Read the usage of the last months."""
    with self.at_work(_key("usage", offering_uuid)):
        looks.at_usage(sites.site(offering_uuid, Mode.REPORT))


TASKS = {"account": account, "person": person, "plan": plan, "usage": usage}


def enqueue_look(kind: str, offering_uuid: str, *subject: str) -> bool:
    """Queue a look for the head node of its offering; False when one like it waits. Raises ConfigError when the
    offering is not ours, QueueUnavailable, and what kombu raises.
    """
    args = (offering_uuid, *subject)
    return enqueue(TASKS[kind], f"asked:{_key(kind, *args)}", args, table.EVENT_PRIORITY)


def _key(kind: str, *args: str) -> str:
    return f"look:{kind}:{':'.join(args)}"
