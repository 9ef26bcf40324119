# SPDX-License-Identifier: MIT
"""Explain why an account has less usage than Waldur: jobs that ran then, and count less or nothing now."""

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


def decreases(site: Site, month: Month, accounts: Sequence[str], state: ReportState) -> dict[str, str]:
    """Return a sentence for each account, also where no job explains it. One command for all accounts."""
    if not accounts:
        return {}
    # Each account has its part of what one command may ask for.
    part = max(1, JOBS_ASKED // len(accounts))
    remembered = {account: dict(list(state.jobs_of(month, account).items())[:part]) for account in accounts}
    ids = list(dict.fromkeys(job_of(run) for runs in remembered.values() for run in runs))
    query = report_facts.query(site, month)
    now: Mapping[str, JobUse] | None = None
    if isinstance(site.backend, JobReader):
        try:
            now = {use.run: use for use in (site.backend.job_uses(query, ids) if ids else ())}
        except BackendError as error:
            log.warning("the jobs that explain a decrease of usage cannot be read: %s", error)
    found = {}
    for account in accounts:
        changed = _changed(account, remembered[account], now) if now is not None else []
        named = ", ".join(changed[:JOBS_NAMED])
        if len(changed) > JOBS_NAMED:
            named += f" and {len(changed) - JOBS_NAMED} more jobs"
        command = report_facts.reader(site).usage_command(query, account)
        found[account] = f"{named or 'no job is known that explains it'}; `{command}` lists what counts now"
    return found


def _changed(account: str, before: Mapping[str, int], now: Mapping[str, JobUse]) -> list[str]:
    """Describe the runs of an account that count less than before, or in another account."""
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
