# SPDX-License-Identifier: MIT
"""A day at the site after its first orders: people come and go, jobs run and are reported, and a plan is held."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from agent.config import load
from agent.core.periods import Month, last_months
from agent.run.diagnosis.picture import waiting_plans
from simulator.demo import parts
from simulator.demo.clusters import EndedJob
from simulator.demo.scenario import Demo

PAUSE_S = 0.3
STATUS_EVERY_S = "10"
NEWCOMER = "newcomer"
MONTHS = 6
# Of jobs in these months: the days on which they ended, and the hours that those of an account took, by month.
DAYS = (4, 12, 20, 26)
HOURS = ((3, 5, 2, 6, 7, 4), (14, 20, 25, 18, 27, 22), (0, 1, 3, 2, 3, 1))


@dataclass(frozen=True)
class Scene:
    """One scene of a day."""

    name: str
    # Does what people do in Waldur.
    play: Callable[[], None]
    # Returns whether it has come true.
    seen: Callable[[], bool]
    # Printed.
    summary: Callable[[], str]


class Day:
    """The scenes of a day, on a demo whose orders are done."""

    def __init__(self, demo: Demo) -> None:
        self._demo = demo
        self._resources = [demo.waldur.order(uuid).resource_uuid for uuid in demo.orders]
        self._leaver = ""
        # The short id of the plan that waits.
        self.held = ""
        self.pages: dict[str, Path] = {}
        self.seconds: dict[str, float] = {}

    def scenes(self) -> Iterator[Scene]:
        yield Scene("members", self._people_move, self._people_are_seen, self._people_summary)
        yield Scene("usage", self._jobs_run, self._usage_is_reported, self._usage_summary)
        yield Scene("held", self._terminate_two, self._plan_is_held, self._held_summary)

    def play(self, scene: Scene) -> str:
        """Play a scene and return its summary. Raises NeverCame when it does not come true, and Stopped."""
        started_s = time.monotonic()
        scene.play()
        self._demo.children.wait_for_work(f"the scene `{scene.name}`", scene.seen, PAUSE_S)
        self.seconds[scene.name] = round(time.monotonic() - started_s, 1)
        return scene.summary()

    def approve(self) -> str:
        """Approve the held plan as an operator does, and wait until it is carried out."""

        def is_gone() -> bool:
            gone = {self._account(uuid) for uuid in self._resources[-2:]}
            return gone.isdisjoint(self._demo.changed_cluster().accounts)

        summary = "It was approved, and the next pass carried it out."
        return self.play(
            Scene("approved", lambda: self._command("approve", self.held), is_gone, lambda: summary)
        )

    def write_pages(self, *, runs_on: bool) -> None:
        """Write the pages of usage and status; while the demo `runs_on`, the second one is kept up to date."""
        folder, environment = self._demo.folder, self._demo.environment
        usage, status = folder / "usage.html", folder / "status.html"
        self._command("usage", "--users", "--months", str(MONTHS), "--html", str(usage))
        words = ("status", "--html", str(status))
        if runs_on:
            keep = [sys.executable, *parts.COMMAND, *words, "--every", STATUS_EVERY_S]
            self._demo.children.start("status page", keep, environment)
            self._demo.children.wait("status page", status.exists)
        else:
            self._command(*words)
        self.pages = {"Status": status, "Usage": usage}
        self._demo.write_activation()

    def commands(self) -> list[str]:
        """Return what is worth trying now, without the name of the program."""
        account = self._account(self._resources[0])
        commands = [
            "status                 # what you see on the page of that name",
            "doctor                 # whether all is well, and what to do",
            "plan membership_sync --commands",
            f"usage --months {MONTHS}       # by account and month, against the limits",
            f"audit --account {account}   # who changed it, when and why",
        ]
        return [
            *([f"approve {self.held}   # let the two allocations end"] if self.held else []),
            *commands,
        ]

    def _command(self, *words: str) -> None:
        """Run a command as an operator does. Raises DemoError, and Stopped."""
        argv = [sys.executable, *parts.COMMAND, *words]
        self._demo.children.run(words[0], argv, self._demo.environment)

    def _people_move(self) -> None:
        waldur = self._demo.waldur
        project = waldur.seed.project_uuids[0]
        members = waldur.store.active_grants(project)
        user = waldur.store.users[members[-1].user_uuid]
        row = waldur.people.account(user.username)
        self._leaver = row.username if row else ""
        waldur.people.add_member(project, NEWCOMER, account=NEWCOMER)
        waldur.people.remove_member(project, user.username)

    def _people_are_seen(self) -> bool:
        users = self._demo.changed_cluster().users_of(self._account(self._resources[0]))
        return NEWCOMER in users and self._leaver not in users

    def _people_summary(self) -> str:
        return (
            f"{NEWCOMER} joined a project in Waldur and {self._leaver} left it: its accounts on the cluster agree "
            f"after {self.seconds['members']:.1f} s."
        )

    def _jobs_run(self) -> None:
        """Let a job have ended now in each of two accounts, and others in these and a third one in the last months."""
        snapshot, now = self._demo.cluster(), datetime.now()
        accounts = [self._account(uuid) for uuid in self._resources[: len(HOURS)]]
        users = {account: sorted(snapshot.users_of(account)) for account in accounts}
        jobs = [EndedJob(account, users[account][0], now, 2) for account in accounts[:2]]
        for number, month in enumerate(last_months(Month.of(now), MONTHS)):
            for day in DAYS:
                ended = datetime(month.year, month.month, day, 12)
                jobs += [
                    EndedJob(account, users[account][day % len(users[account])], ended, hours[number])
                    for account, hours in zip(accounts, HOURS, strict=True)
                    if hours[number] and ended < now
                ]
        self._demo.kind.use(self._demo.folder, jobs)

    def _usage_is_reported(self) -> bool:
        usages = self._demo.waldur.store.usages
        return all(any(row.usage for row in usages.where("resource", uuid)) for uuid in self._resources[:2])

    def _usage_summary(self) -> str:
        names = " and ".join(self._account(uuid) for uuid in self._resources[:2])
        return f"Jobs ran in {names}: Waldur knows what they used after {self.seconds['usage']:.1f} s."

    def _terminate_two(self) -> None:
        for uuid in self._resources[-2:]:
            self._demo.waldur.orders.place_terminate(uuid)

    def _plan_is_held(self) -> bool:
        settings = load.require(self._demo.config, self._demo.environment)
        waiting = waiting_plans(settings.state_dir, settings.offerings)
        self.held = waiting[0].plan.short_id if waiting else ""
        return bool(self.held)

    def _held_summary(self) -> str:
        names = " and ".join(self._account(uuid) for uuid in self._resources[-2:])
        return (
            "Two allocations were terminated in Waldur at once. This site lets one go without an approval, "
            f"so nothing is deleted: {names} wait for `approve {self.held}`."
        )

    def faults(self) -> list[str]:
        """Return what is wrong with a plan that is held, a sentence each."""
        there = self._demo.cluster().accounts
        lost = [name for uuid in self._resources[-2:] if (name := self._account(uuid)) not in there]
        return [f"account {name} is deleted without an approval" for name in lost]

    def _account(self, resource_uuid: str) -> str:
        return self._demo.waldur.resource(resource_uuid).backend_id
