# SPDX-License-Identifier: MIT
"""A simulated Waldur that sells deposits, a stand-in MAM, and the configuration that joins them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from agent.config.model import Mode
from agent.run import passes
from agent.run import site as sites
from agent.run.configuration import checked
from agent.run.results import PassReport
from agent.run.site import Site
from simulator.mam.books import money
from simulator.mam.install import StandIn
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import ComponentSpec, Scenario

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


class World:
    """`order` places orders, `process` and `sync` are passes; MAM's books tell what came of them."""

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
        self.mam = StandIn(folder / "mam")
        self.mam.watch()
        self.path = folder / "site.yaml"
        self.configure(backend=backend, components=components, **offering)

    def configure(
        self,
        *,
        backend: Mapping[str, Any] | None = None,
        components: Mapping[str, Any] | None = None,
        **offering: Any,
    ) -> None:
        """The offering of the seeds' example, with these keys changed."""
        waldur = self.waldur
        document = {
            "state_dir": str(self.folder / "state"),
            "offerings": [
                {
                    "name": "Test MOAB",
                    "waldur_api_url": waldur.url,
                    "waldur_api_token": waldur.token(),
                    "waldur_offering_uuid": waldur.seed.offering_uuid,
                    "username_management_backend": "base",
                    "order_processing_backend": "moab",
                    "membership_sync_backend": "moab",
                    "reporting_backend": "moab",
                    "backend_type": "moab",
                    "backend_settings": {
                        "default_account": "root",
                        "customer_prefix": "c_",
                        "project_prefix": "p_",
                        "allocation_prefix": "a_",
                        "enable_user_homedir_account_creation": True,
                        "moab_bin_path": str(self.mam.bin),
                        **(backend or {}),
                    },
                    "backend_components": dict(COMPONENTS if components is None else components),
                    **offering,
                }
            ],
        }
        self.path.write_text(yaml.safe_dump(document), encoding="utf-8")
        self.path.chmod(0o600)
        self._sites: dict[Mode, Site] = {}

    def site(self, mode: Mode = Mode.ORDER_PROCESS) -> Site:
        if mode not in self._sites:
            settings = checked(self.path, {}).settings
            assert settings is not None
            self._sites[mode] = sites.connect(settings, settings.offerings[0], mode)
        return self._sites[mode]

    def order(self, name: str = "one", *, project: int = 0, deposit: Any = 100) -> str:
        """Place a create order; the uuid of its resource."""
        limits = {} if deposit is None else {"deposit": deposit}
        uuid = self.waldur.seed.project_uuids[project]
        return self.waldur.order(
            self.waldur.place_create_order(uuid, name, limits=limits, slug=name)
        ).resource_uuid

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

    def process(self, **expected: int) -> PassReport:
        """One order pass that ends so."""
        found = passes.process_orders(self.site())
        assert found.counted() == expected, found.as_json()
        return found

    def sync(self, *, fails: bool = False) -> PassReport:
        """One membership pass, which an error ends where it `fails`."""
        found = passes.sync_members(self.site(Mode.MEMBERSHIP_SYNC))
        assert (found.error is not None) is fails, found.as_json()
        return found

    def report(self, *, fails: bool = False) -> PassReport:
        found = passes.report_usage(self.site(Mode.REPORT))
        assert (found.error is not None) is fails, found.as_json()
        return found

    def join(self, username: str, *, project: int = 0) -> None:
        uuid = self.waldur.seed.project_uuids[project]
        self.waldur.people.add_member(uuid, username, account=username)

    def leave(self, account: str, *, project: int = 0) -> None:
        """By the name on the cluster."""
        (row,) = (row for row in self.waldur.store.offering_users if row.username == account)
        username = self.waldur.store.users[row.user_uuid].username
        self.waldur.people.remove_member(self.waldur.seed.project_uuids[project], username)

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


def changes(found: PassReport) -> list[str]:
    """What was done, but for the sign that a pass was there."""
    silent = ("refresh last sync",)
    done = (o.action for o in found.outcomes if o.done and o.action.verb not in silent)
    return [action.render().split("  (")[0] for action in done]
