# SPDX-License-Identifier: MIT
"""Why an account has less usage than Waldur was told: jobs that ran then, and count less or nothing now."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from agent.core.errors import BackendError
from agent.core.periods import Month
from agent.core.usage import JobUse, job_of
from agent.run.site import Site
from agent.run.usage import facts as report_facts
from agent.state.report_state import ReportState
from backends.base import JobReader

log = logging.getLogger(__name__)

JOBS_ASKED = 1000
JOBS_NAMED = 5


def decreases(site: Site, month: Month, accounts: Sequence[str], memory: ReportState) -> dict[str, str]:
    """A sentence for each account; one command for all of them. What cannot be found is said, too."""
    if not accounts:
        return {}
    remembered = {account: memory.jobs_of(month, account) for account in accounts}
    # Each account has its part of what one command may ask for.
    part = max(1, JOBS_ASKED // len(accounts))
    remembered = {account: dict(list(runs.items())[:part]) for account, runs in remembered.items()}
    ids = list(dict.fromkeys(job_of(run) for runs in remembered.values() for run in runs))
    now = _now(site, month, ids)
    found = {}
    for account in accounts:
        changed = _changed(account, remembered[account], now) if now is not None else []
        command = report_facts.reader(site).usage_command(report_facts.query(site, month), account)
        by_hand = f"`{command}` lists what counts now"
        found[account] = (
            f"{_some(changed)}; {by_hand}" if changed else f"no job is known that explains it; {by_hand}"
        )
    return found


def _now(site: Site, month: Month, ids: Sequence[str]) -> Mapping[str, JobUse] | None:
    """All runs of these jobs as they are now; None where that cannot be known."""
    if not isinstance(site.backend, JobReader):
        return None
    try:
        uses = site.backend.job_uses(report_facts.query(site, month), ids) if ids else []
    except BackendError as error:
        log.warning("the jobs that explain a decrease of usage cannot be read: %s", error)
        return None
    return {use.run: use for use in uses}


def _changed(account: str, before: Mapping[str, int], now: Mapping[str, JobUse]) -> list[str]:
    words = []
    for run, seconds in before.items():
        job, use = job_of(run), now.get(run)
        if use is None:
            words.append(f"job {job} had counted {seconds} s and is gone")
        elif use.account != account:
            words.append(
                f"job {job} of {use.user} had counted {seconds} s and is in account {use.account} now"
            )
        elif use.seconds < seconds:
            words.append(
                f"job {job} of {use.user} had counted {seconds} s, now {use.seconds} s ({use.state})"
            )
    return words


def _some(words: Sequence[str]) -> str:
    more = len(words) - JOBS_NAMED
    return ", ".join(words[:JOBS_NAMED]) + (f" and {more} more jobs" if more > 0 else "")
