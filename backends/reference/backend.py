# SPDX-License-Identifier: MIT
"""Reports what a backend of the reference says was used. It serves nothing else: it has no accounts and no members."""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from agent.core import checks
from agent.core.account_names import fold
from agent.core.actions import ClusterAction
from agent.core.checks import Check
from agent.core.errors import BackendError, BackendUnavailable, ConfigError, PlanRefused, PluginFailed
from agent.core.model import AllocationSpec, Health, Part, Snapshot
from agent.core.periods import Month
from agent.core.plans import Outcome
from agent.core.usage import AccountUsage, Usage, UsageQuery
from backends.base import BackendContext, Scope
from backends.reference import report
from backends.reference.child import Child, Hosted
from backends.reference.venv import package_of

log = logging.getLogger(__name__)

REPORTS_ONLY = "a plugin of waldur-site-agent serves `reporting_backend` only, and neither orders nor members"
LATER = "the plugin was not asked for it any more, and this account comes first in the next report"
# For the accounts of one month: a report has 240 s in all.
MONTH_S = 90.0
# A worker waits for it when it starts.
CHECK_TIMEOUT_S = 30.0


class ReferenceBackend:
    """One plugin for one offering."""

    def __init__(
        self, hosted: Hosted, context: BackendContext, cluster_name: str = "", *, month_s: float = MONTH_S
    ) -> None:
        self._hosted = hosted
        self._offering = context.offering_uuid
        self._child = Child(hosted, context.timezone)
        self._month_s = month_s
        # When an account was asked for last, by month: who had no turn is the first in the next report.
        self._asked: dict[tuple[Month, str], float] = {}
        # Components of other services that were logged already.
        self._others: set[str] = set()
        self.cluster = fold(cluster_name) or context.seen_cluster or hosted.name
        self.default_account = ""
        self.executed = self._child.executed
        self.charged = f"what the plugin {hosted.name} reports"

    def usage(self, query: UsageQuery) -> Usage:
        """Ask for one account after the other, as the reference does. An account is unknown where the plugin raises an
        exception, names nothing or reports what is no usage; and where its process gave no answer although it had
        answered for others: then no further one is asked. Raises BackendError; PluginFailed where all that it was
        asked for failed.
        """
        period = {} if _is_present(query) else {"year": query.month.year, "month": query.month.month}
        offering = query.offering_backend_id
        found: dict[str, AccountUsage] = {}
        unknown: dict[str, str] = {}
        failed: list[PluginFailed] = []
        # That it names nothing is an answer too.
        has_answered = False
        ends_s = time.monotonic() + self._month_s
        for account in sorted(query.accounts, key=lambda each: self._asked.get((query.month, each), 0.0)):
            now_s = time.monotonic()
            if now_s > ends_s and (has_answered or failed):
                unknown[fold(account)] = LATER
                continue
            self._asked[query.month, account] = now_s
            try:
                answer = self._child.ask("usage", account=account, offering=offering, **period)
                if answer is not None:
                    found[fold(account)] = report.account_usage(answer, self._hosted.backend_components)
                    self._log_others(answer)
                has_answered = True
            except (PluginFailed, report.WrongReport) as error:
                unknown[fold(account)] = str(error)
                failed.append(_failure(self._hosted, account, error))
            except BackendUnavailable as error:
                if not has_answered:
                    raise
                unknown[fold(account)] = str(error)
                ends_s = now_s
        if failed and not has_answered:
            raise failed[0]
        if not period and not _is_present(query):
            raise BackendUnavailable(f"{query.month} ended while {self._hosted} was asked for it")
        return Usage(
            query,
            found,
            records=len(found),
            scale=report.SCALE,
            by_component=True,
            may_fall=self._child.may_fall,
            unknown=unknown,
        )

    def usage_command(self, query: UsageQuery, account: str) -> str:
        return shlex.join(("waldur-site-cluster", "usage", "--offering", self._offering))

    def observe(self, scope: Scope = Scope()) -> Snapshot:
        """Return that there are no accounts: what the plugin counts is not on a cluster."""
        return Snapshot(self.cluster, complete=scope.parts & {Part.ACCOUNTS})

    def check(self) -> Health:
        """Ask the plugin for its service and its components. Raises BackendUnavailable."""
        try:
            package = package_of(self._hosted.venv, self._hosted.name)
            answer = self._child.ask("check", CHECK_TIMEOUT_S)
        except ConfigError as error:
            return Health(cluster=self.cluster, problems=(str(error),))
        problems = []
        if not answer["ping"]:
            problems.append(f"{self._hosted}: its service does not answer (ping): {self._child.said}")
        listed, wanted = set(map(str, answer["components"])), set(self._hosted.backend_components)
        if listed and not listed & wanted:
            problems.append(
                f"{self._hosted} reports {', '.join(sorted(listed))}, and backend_components has none of them: "
                f"{', '.join(sorted(wanted))}"
            )
        return Health(package, self.cluster, tuple(problems))

    def checks(self) -> Mapping[str, Callable[[], Check | datetime]]:
        return {f"diagnostics of {self._hosted.name}": self._diagnostics}

    def canonical(self, spec: AllocationSpec, snapshot: Snapshot) -> AllocationSpec:
        raise PlanRefused(f"{self._hosted}: {REPORTS_ONLY}")

    def prepare(self) -> None:
        raise BackendError(f"{self._hosted}: {REPORTS_ONLY}")

    def apply(self, actions: Sequence[ClusterAction]) -> Sequence[Outcome]:
        return [Outcome(action, BackendError(f"{self._hosted}: {REPORTS_ONLY}")) for action in actions]

    def commands(self, actions: Sequence[ClusterAction]) -> Sequence[str]:
        return ()

    def _diagnostics(self) -> Check:
        name = f"diagnostics of {self._hosted.name}"
        if self._child.ask("diagnostics") is True:
            return checks.ok(name, self._child.said or "the plugin finds nothing wrong")
        said = self._child.said or "it says no word why"
        return checks.problem(name, said, f"see the log for all that the plugin printed ({self._hosted})")

    def _log_others(self, answer: Mapping[str, Mapping[str, object]]) -> None:
        others = report.other_components(answer, self._hosted.backend_components) - self._others
        if others:
            self._others |= others
            log.warning(
                "%s reports %s, which backend_components does not have: it is not reported to Waldur",
                self._hosted,
                ", ".join(sorted(others)),
            )


def _is_present(query: UsageQuery) -> bool:
    return Month.of(datetime.now(ZoneInfo(query.zone))) == query.month


def _failure(hosted: Hosted, account: str, error: PluginFailed | report.WrongReport) -> PluginFailed:
    return (
        error if isinstance(error, PluginFailed) else PluginFailed(f"{hosted}, usage of {account}: {error}")
    )
