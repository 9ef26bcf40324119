# SPDX-License-Identifier: MIT
"""Membership on the real SLURM: a site with both modes, and what sacctmgr says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.config.model import Mode
from agent.run import passes
from agent.run import site as sites
from agent.run.results import PassReport
from agent.run.scope import PassScope
from rig.site import configuration, settings_of
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur


class OnSlurm:
    """`allocate` makes allocations by orders; `sync` is one membership pass."""

    def __init__(self, slurm: SlurmCluster, waldur: SimulatedWaldur, folder: Path, **options: Any) -> None:
        self.slurm, self.waldur = slurm, waldur
        # Some of the users are the machine's own: nobody would get a home on it.
        backend = {"enable_user_homedir_account_creation": False, **options.pop("backend", {})}
        keys = {"membership_sync_backend": "slurm", **options}
        self.path = configuration(waldur, folder, backend=backend, **keys)
        settings = settings_of(self.path)
        (offering,) = settings.offerings
        self.orders = sites.connect(settings, offering, Mode.ORDER_PROCESS)
        self.site = sites.connect(settings, offering, Mode.MEMBERSHIP_SYNC)

    def allocate(self, *names: str, project: int = 0, **limits: float) -> list[str]:
        """The uuids of the new resources."""
        uuid = self.waldur.seed.project_uuids[project]
        placed = [
            self.waldur.place_create_order(uuid, name, limits=limits or {"cpu": 10}, slug=name)
            for name in names
        ]
        self.placed(len(names))
        return [self.waldur.order(order).resource_uuid for order in placed]

    def placed(self, number: int) -> None:
        """So many orders are done in one pass."""
        report = passes.process_orders(self.orders)
        assert report.counted() == {"done": number}, report.as_json()

    def sync(self, *, resource: str = "", seconds: float = 600) -> PassReport:
        return passes.sync_members(self.site, scope=PassScope.of(resource_uuid=resource), seconds=seconds)

    def settled(self) -> None:
        for _ in range(2):
            report = self.sync()
            assert not report.failed, report.as_json()
        self.in_step()

    def in_step(self) -> None:
        """One more pass writes nothing on the cluster."""
        report = self.sync()
        assert not report.failed, report.as_json()
        assert report.effort.commands["write"] == 0, changes(report)

    def join(self, *usernames: str, project: int = 0) -> None:
        for name in usernames:
            self.waldur.people.add_member(self.waldur.seed.project_uuids[project], name, account=name)

    def leave(self, *accounts: str, project: int = 0) -> None:
        """By their names on the cluster."""
        for account in accounts:
            row = next(row for row in self.waldur.store.offering_users if row.username == account)
            username = self.waldur.store.users[row.user_uuid].username
            self.waldur.people.remove_member(self.waldur.seed.project_uuids[project], username)

    def change(self, resource: str, **values: Any) -> None:
        self.waldur.site.change("resources", resource, **values)

    def members(self, account: str) -> set[str]:
        rows = self.assoc("user", account)
        return {row for row in rows if row}

    def assoc(self, columns: str, account: str) -> list[str]:
        """Rows of `show assoc` of one account, own values only."""
        words = ("show", "assoc", "where", f"account={account}", f"format={columns}", "WOPLimits")
        return self.slurm.ask("sacctmgr", "-nP", *words).splitlines()

    def defaults(self) -> dict[str, str]:
        rows = self.slurm.ask("sacctmgr", "-nP", "show", "user", "format=user,defaultaccount").splitlines()
        return dict(row.split("|") for row in rows)


def changes(report: PassReport) -> list[str]:
    """All that was done, but for what Waldur is told in the end."""
    silent = ("refresh last sync",)
    return [
        o.action.render().split("  (")[0] for o in report.outcomes if o.done and o.action.verb not in silent
    ]
