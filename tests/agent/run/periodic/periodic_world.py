# SPDX-License-Identifier: MIT
"""A cluster in memory that keeps periodic settings, and a site on it. What SLURM does is tested on the real one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.core.errors import SiteAgentError
from agent.core.model import Account
from agent.run import passes
from agent.run.periodic import mode as periodic_limits
from agent.run.results import PassReport
from agent.run.site import Site
from agent.state import held_plans, periodic_policies
from backends.testing.periodic import AccountSettings, PeriodicMemoryBackend
from simulator.server.waldur import SimulatedWaldur
from tests.step_faults import MortalClient
from tests.world import site_in_memory

ACCOUNT = "a_one"
PERIODIC = {"periodic_limits": {"enabled": True}}


class PeriodicCluster(PeriodicMemoryBackend):
    """With the use of limits of the account."""

    def uses(self, **used: int) -> None:
        """What counts against the limits of the account."""
        self.state = replace(self.state, used={ACCOUNT: used})


class PeriodicWorld:
    """One resource with its account, and a policy that sends messages."""

    def __init__(self, waldur: SimulatedWaldur, folder: Path, **policy: Any) -> None:
        self.waldur = waldur
        self.resource = waldur.seed.resource_uuids[0]
        self.policy = waldur.site.add_policy(period=2)
        waldur.site.change("resources", self.resource, backend_id=ACCOUNT)
        self.cluster = PeriodicCluster()
        self.cluster.state = replace(
            self.cluster.state,
            accounts={**self.cluster.state.accounts, ACCOUNT: Account(ACCOUNT, "root")},
            used={ACCOUNT: {}},
        )
        self.site = site_in_memory(
            waldur, folder, self.cluster, MortalClient, backend=PERIODIC, policy=policy
        )
        self.offering, self.client = self.site.offering, self.site.client

    @property
    def account_settings(self) -> AccountSettings:
        """What the cluster holds for the account."""
        return self.cluster.periodic.accounts[ACCOUNT]

    def with_policy(self, **rules: Any) -> Site:
        """The same site under other rules."""
        return replace(
            self.site, offering=replace(self.offering, policy=replace(self.offering.policy, **rules))
        )

    def message(self, settings: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
        return {
            "action": "apply_periodic_settings",
            "backend_id": ACCOUNT,
            "policy_uuid": self.policy,
            "resource_uuid": self.resource,
            "settings": dict(settings),
            "timestamp": "2026-01-01T00:10:02",
            **changes,
        }

    def received(self, document: Mapping[str, Any], site: Site | None = None) -> SiteAgentError | None:
        """As the task does it, but for coming back: what will not pass is reported. What is left to be done again."""
        site = site or self.site
        try:
            periodic_limits.run(site, document)
        except SiteAgentError as error:
            if error.retryable:
                return error
            periodic_limits.report_failure(site.offering, site.state_dir, document, error, client=self.client)
        return None

    def reported(self) -> list[tuple[bool, str, int]]:
        return [(r.success, r.error_message, len(r.commands_executed)) for r in self.results]

    @property
    def results(self) -> Sequence[Any]:
        return self.waldur.store.command_results

    def parked(self) -> list[periodic_policies.ParkedMessage]:
        return periodic_policies.parked(self.site.state_dir, self.offering.uuid)

    def waiting(self) -> list[str]:
        """Ids of the plans that `approve` lists."""
        everywhere = held_plans.all_held(self.site.state_dir, [self.offering])
        return [plan.id for held in everywhere for plan in held.waiting()]

    def order_pass(self, site: Site | None = None) -> PassReport:
        return passes.process_orders(site or self.site)
