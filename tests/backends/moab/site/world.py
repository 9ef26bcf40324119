# SPDX-License-Identifier: MIT
"""A simulated Waldur that sells deposits, a stand-in MAM, and the configuration that joins them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

from agent.config.model import Mode
from agent.run import site as sites
from agent.run.results import PassReport
from agent.run.site import Site
from rig.mam import quick_stand_in
from rig.site import configuration, settings_of
from simulator.mam.books import money
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import ComponentSpec, Scenario
from tests.world import AnyWorld

DEPOSIT = ComponentSpec(type="deposit", name="Deposit (EUR)", measured_unit="EUR")
COMPONENTS: dict[str, Any] = {
    "deposit": {"measured_unit": "EUR", "accounting_type": "limit", "label": "Deposit (EUR)"}
}
MODES = (Mode.ORDER_PROCESS, Mode.MEMBERSHIP_SYNC, Mode.REPORT)


def scenario(**changes: Any) -> Scenario:
    usual: dict[str, Any] = {
        "components": (DEPOSIT,), "allocation_limits": {"deposit": 100}, "members_per_project": 2,
        "backend_prefix": "a_",
    }  # fmt: skip
    return Scenario(**{**usual, **changes})


class World(AnyWorld):
    """An offering that sells deposits on a stand-in MAM, whose books have what came of it."""

    LIMITS: ClassVar[Mapping[str, float]] = {"deposit": 100}

    def __init__(
        self,
        waldur: SimulatedWaldur,
        folder: Path,
        *,
        backend: Mapping[str, Any] | None = None,
        components: Mapping[str, Any] | None = None,
        **offering: Any,
    ) -> None:
        self.waldur = waldur
        self.folder = folder
        self.mam = quick_stand_in(folder / "mam")
        self.mam.watch()
        self.configure(backend=backend, components=components, **offering)

    def configure(
        self,
        *,
        backend: Mapping[str, Any] | None = None,
        components: Mapping[str, Any] | None = None,
        **offering: Any,
    ) -> None:
        """The offering of the seeds' example, with these keys changed."""
        modes = dict.fromkeys(
            ("order_processing_backend", "membership_sync_backend", "reporting_backend", "backend_type"),
            "moab",
        )
        settings = {
            "default_account": "root",
            "customer_prefix": "c_",
            "project_prefix": "p_",
            "allocation_prefix": "a_",
            "enable_user_homedir_account_creation": True,
            "moab_bin_path": str(self.mam.bin),
            **(backend or {}),
        }
        keys = {"name": "Test MOAB", **modes, "backend_settings": settings, **offering}
        keys["backend_components"] = dict(COMPONENTS if components is None else components)
        self.path = configuration(self.waldur, self.folder, **keys)
        self._sites: dict[Mode, Site] = {}

    @property
    def site(self) -> Site:
        return self.site_for(Mode.ORDER_PROCESS)

    def site_for(self, mode: Mode) -> Site:
        if mode not in self._sites:
            settings = settings_of(self.path)
            self._sites[mode] = sites.connect(settings, settings.offerings[0], mode)
        return self._sites[mode]

    def stand(self, *names: str, deposit: int = 100) -> list[str]:
        """Give the scenario's allocations, in their order, these accounts, as if orders had made them."""
        store, found = self.waldur.store, []
        people = {row.user_uuid: row.username for row in store.offering_users}
        with self.mam.changed() as books:
            for name, uuid in zip(names, self.waldur.seed.resource_uuids, strict=False):
                project = store.projects[store.resources[uuid].project_uuid]
                above = f"p_{project.slug}"
                if above not in books.accounts:
                    books.create_account(above, organization=above)
                    books.create_fund(above)
                books.create_account(name, organization=above)
                books.create_fund(name)
                books.deposit(str(books.next_fund - 1), deposit * 100)
                for grant in store.active_grants(project.uuid):
                    books.add_user(name, people[grant.user_uuid])
                limits = {"deposit": deposit}
                self.waldur.site.change("resources", uuid, backend_id=name, limits=limits)
                self.waldur.site.change("resources", uuid, backend_metadata={"account_state": "open"})
                found.append(uuid)
        return found

    def sync(self, *, fails: bool = False, **options: Any) -> PassReport:
        """One membership pass, which an error ends where it `fails`."""
        found = super().sync(**options)
        assert (found.error is not None) is fails, found.as_json()
        return found

    def report(self, *, fails: bool = False) -> PassReport:
        found = super().report()
        assert (found.error is not None) is fails, found.as_json()
        return found

    def charge(self, account: str, user: str, amount: str, when: datetime | None = None) -> None:
        self.mam.charge(account, user, amount, when or datetime.now(UTC))

    def members(self, account: str) -> set[str]:
        return set(self.mam.books.accounts[account]["users"])

    def funds(self, account: str) -> list[tuple[str, str]]:
        """What the funds of an account were given, and what is left of it."""
        rows = self.mam.books.funds.values()
        own = [row for row in rows if row["constraints"] == {"Account": account}]
        return [(money(row["allocated"]), money(row["balance"])) for row in own]

    def limits(self, resource: str) -> dict[str, Any]:
        return dict(self.waldur.resource(resource).limits)

    def usage(self, resource: str) -> dict[str, Decimal]:
        """What Waldur holds, by the first day of the month."""
        rows = (row for row in self.waldur.store.usages if row.resource_uuid == resource)
        return {str(row.billing_period): Decimal(str(row.usage)) for row in rows}
