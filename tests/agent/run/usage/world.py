# SPDX-License-Identifier: MIT
"""A simulated Waldur with allocations, a cluster in memory on which jobs ran, and a clock that a test sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from agent.config.model import Mode
from agent.core.model import Account, Snapshot
from agent.core.periods import Month
from agent.core.policy import PolicyMode, UsageDecreases
from agent.http.client import Timeouts
from agent.run import engine, passes
from agent.run.results import PassReport
from agent.run.site import Site
from agent.run.usage.mode import Usage
from agent.run.usage.planning import PlannedReport
from backends.testing.memory import slurm_settings
from rig.site import configuration, settings_of
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import ComponentUsage
from simulator.world.seed import ComponentSpec, Scenario, grant
from tests.agent.run.usage.jobs import Job, JobBackend
from tests.world import client_of

NOW = datetime(2026, 11, 20, 15, 30, tzinfo=UTC)
THIS, LAST = Month(2026, 11), Month(2026, 10)
# TRES-seconds of a core-hour, as SLURM counts them.
HOUR = 3600
QUICK = Timeouts(backoff_max_s=0.05, retry_after_max_s=1)
CPU = ComponentSpec(type="cpu", name="CPU", measured_unit="h", billing_type="usage")
MEM = ComponentSpec(type="mem", name="Memory", measured_unit="GB-h")
COMPONENTS = {
    "cpu": {"measured_unit": "h", "accounting_type": "usage", "label": "CPU", "unit_factor": 60},
    "mem": {"measured_unit": "GB-h", "accounting_type": "limit", "label": "Memory", "unit_factor": 61440},
}
# Usage by account: what Waldur holds of a component in a month.
Figures = dict[str, dict[str, str]]


def scenario(**changes: Any) -> Scenario:
    """Four allocations, a_1 to a_4 in the tests' words, with `cpu` billed by usage and `mem` by its limit."""
    usual: dict[str, Any] = {
        "components": (CPU, MEM),
        "projects_per_customer": 2,
        "members_per_project": 2,
        "allocations_per_project": 2,
        "backend_prefix": "a_",
    }
    return Scenario(**{**usual, **changes})


class World:
    """`ran` lays down a job, `report` is one pass, `in_waldur` what Waldur then holds."""

    def __init__(
        self,
        waldur: SimulatedWaldur,
        folder: Path,
        *,
        user: str = "agent",
        zone: str = "UTC",
        periods: int = 2,
        components: Mapping[str, Any] | None = None,
        **offering: Any,
    ) -> None:
        self.waldur = waldur
        self.state_dir = folder / "state"
        self.backend = JobBackend(settings=slurm_settings())
        keys = {"reporting_backend": "slurm", "waldur_api_token": waldur.token(user), **offering}
        self.path = configuration(waldur, folder, components=components or COMPONENTS, **keys)
        self.settings = replace(settings_of(self.path), reporting_periods=periods)
        self.zone = zone
        self._offering = self.settings.offerings[0]
        self.now = NOW
        self.site = self.connected()
        self.accounts = []
        for number, uuid in enumerate(waldur.seed.resource_uuids, 1):
            waldur.site.change("resources", uuid, backend_id=f"a_{number}")
            self.accounts.append(f"a_{number}")
        self.make(*self.accounts)

    def connected(self, attempts: int = 4) -> Site:
        """The site as a process that has just started knows it."""
        client = client_of(self._offering, attempts=attempts, timeouts=QUICK)
        return Site(
            self._offering,
            client,
            self.backend,
            self.state_dir,
            zone=ZoneInfo(self.zone),
            reporting_periods=self.settings.reporting_periods,
        )

    def policy(self, **rules: Any) -> None:
        """Change the offering's rules, as a restart with another configuration would."""
        known = {"usage_decreases": UsageDecreases, "mode": PolicyMode}
        changes = {name: known[name](value) if name in known else value for name, value in rules.items()}
        self._offering = replace(self._offering, policy=replace(self._offering.policy, **changes))
        self.restart()

    def restart(self) -> None:
        self.site = self.connected()

    @property
    def now(self) -> datetime:
        return self.waldur.store.clock.now()

    @now.setter
    def now(self, moment: datetime) -> None:
        """The same time here and in Waldur."""
        self.waldur.store.clock.freeze(moment)

    def clock(self) -> datetime:
        return self.now.astimezone(self.site.zone)

    def later(self, **passed: float) -> None:
        self.now += timedelta(**passed)

    @property
    def cluster(self) -> Snapshot:
        return self.backend.state

    def make(self, *accounts: str) -> None:
        made = {name: Account(name, "root") for name in accounts}
        self.backend.state = replace(self.cluster, accounts={**self.cluster.accounts, **made})

    def drop(self, account: str) -> None:
        kept = {name: each for name, each in self.cluster.accounts.items() if name != account}
        self.backend.state = replace(self.cluster, accounts=kept)

    def ran(
        self,
        account: str,
        user: str,
        hours: float,
        *,
        month: Month = THIS,
        job: str = "",
        live: bool = False,
        **counts: int,
    ) -> str:
        """So many core-hours, and more counts where they are given. Returns the job's id."""
        number = job or str(len(self.backend.jobs) + 1)
        counted = {"cpu": round(hours * HOUR), **counts}
        self.backend.jobs.append(Job(number, account, user, month, counted, round(hours * HOUR), live))
        return number

    def alter(self, job: str, **changes: Any) -> None:
        self.backend.jobs = [replace(j, **changes) if j.id == job else j for j in self.backend.jobs]

    def forget(self, job: str) -> None:
        self.backend.jobs = [each for each in self.backend.jobs if each.id != job]

    def busy(self, month: Month = THIS) -> None:
        """Each account has its number of core-hours, all by one user of its own."""
        for number, account in enumerate(self.accounts, 1):
            self.ran(account, f"u{number}", number, month=month)

    def plan(self) -> PlannedReport:
        with engine.passing(self.site, Mode.REPORT, clock=self.clock, applies=False) as run:
            engine.walk(run, [Usage])
        if run.report.error is not None:
            raise run.report.error
        plan: PlannedReport = run.works[0].plan
        return plan

    def report(self, **options: Any) -> PassReport:
        return passes.report_usage(self.site, clock=self.clock, **options)

    def deliver(self, planned: PlannedReport) -> PassReport:
        """Submit what was planned, maybe a while ago."""
        with engine.passing(self.site, Mode.REPORT, clock=self.clock) as run:
            run.given = {Usage: planned}
            engine.walk(run, passes.REPORT)
        return run.report

    def demote(self, username: str) -> None:
        """Staff no more, but an owner of the provider."""
        store = self.waldur.store
        (user,) = store.users.where("username", username)
        user.is_staff = False
        customer = store.offerings[self.waldur.seed.offering_uuid].customer_uuid
        grant(store, user, "CUSTOMER.OWNER", scope_type="customer", scope_uuid=customer)

    def sent(self) -> list[tuple[str, str]]:
        """What was sent to be kept since the log was emptied: method and endpoint."""
        entries = self.waldur.requests.entries("POST *")
        return [(entry.method, entry.endpoint) for entry in entries]

    def quiet(self) -> None:
        """One more report submits nothing."""
        self.waldur.requests.reset()
        report = self.report()
        assert (report.error, report.failed) == (None, False), report.as_json()
        assert self.sent() == []

    def resource(self, account: str) -> str:
        return self.waldur.seed.resource_uuids[self.accounts.index(account)]

    def rows(self, month: Month = THIS) -> list[ComponentUsage]:
        return [row for row in self.waldur.store.usages if row.billing_period == month.first_day]

    def in_waldur(self, month: Month = THIS) -> Figures:
        """Totals by account and component."""
        found: Figures = {}
        for row in self.rows(month):
            account = self.accounts[self.waldur.seed.resource_uuids.index(row.resource_uuid)]
            found.setdefault(account, {})[row.component_type] = f"{row.usage:.2f}"
        return found

    def shares(self, account: str, component: str = "cpu", month: Month = THIS) -> dict[str, str]:
        """Users of a record by the name that Waldur has for them."""
        records = [
            row.uuid
            for row in self.rows(month)
            if (row.resource_uuid, row.component_type) == (self.resource(account), component)
        ]
        return {
            share.username: f"{share.usage:.2f}"
            for record in records
            for share in self.waldur.store.user_usages.where("usage", record)
        }

    def linked(self, username: str) -> str | None:
        """Uuid of the offering user that a share is linked to."""
        rows = [row for row in self.waldur.store.user_usages if row.username == username]
        return rows[0].offering_user_uuid if rows else None
