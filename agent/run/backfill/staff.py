# SPDX-License-Identifier: MIT
"""The site of an offering with a staff token instead of its own, and what must hold before history is loaded.

Waldur takes usage of closed months from staff only. The token is read where it is used, and goes nowhere else.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from agent.config.findings import Findings, has_errors
from agent.config.model import Mode, Offering, Settings
from agent.config.secret import Secret
from agent.config.sources import secret_in
from agent.core.errors import SiteAgentError, WaldurError
from agent.run import site as sites
from agent.run.site import Site
from agent.waldur import me, usages
from backends.base import UsageReader

log = logging.getLogger(__name__)

MODE = Mode.REPORT
# As the reference's loader calls itself.
USER_AGENT = "historical-usage-loader"
UNSUPPORTED = "Backend does not support historical usage reporting"
NO_STAFF = "Historical usage loading requires staff user privileges"


class HistoryRefused(SiteAgentError):
    """Nothing of it can be loaded, however often it is tried."""


def token_in_file(offering: Offering) -> Secret:
    """What `staff_token_file` holds on this host. Raises HistoryRefused."""
    if offering.staff_token_file is None:
        raise HistoryRefused(
            f"offering {offering.name} has no `staff_token_file` in the configuration of this host: give it there, or "
            "load with --local"
        )
    findings = Findings()
    token = secret_in(offering.staff_token_file, "staff_token_file", findings)
    if token is None or has_errors(findings.problems):
        sentences = "; ".join(problem.message for problem in findings.problems)
        raise HistoryRefused(f"staff_token_file of offering {offering.name}: {sentences}")
    for problem in findings.problems:
        log.warning("%s", problem)
    return Secret(token)


def connect(settings: Settings, offering: Offering, token: Secret | None) -> Site:
    """With the offering's own token where there is no other. Raises ConfigError, and HistoryRefused where its backend
    tells of no usage.
    """
    name = offering.backend_of(MODE)
    if not name:
        raise HistoryRefused(
            f"{UNSUPPORTED}: offering {offering.name} has no `reporting_backend`; give it one (slurm, moab)"
        )
    if token and not (token.reveal().isascii() and token.reveal().isprintable()):
        raise HistoryRefused("the staff token has a line break or a letter that no token has: copy it again")
    access = replace(offering.access, token=token, oidc=None) if token else offering.access
    with_staff = replace(offering, access=access)
    site = sites.connect(settings, with_staff, MODE)
    if not isinstance(site.backend, UsageReader):
        raise HistoryRefused(
            f"{UNSUPPORTED}: `reporting_backend: {name}` of offering {offering.name} does not tell what was used in a "
            "month; take one that does (slurm, moab)"
        )
    return replace(site, client=sites.client(with_staff, USER_AGENT))


def check(site: Site, *, is_staff_needed: bool) -> str:
    """Who loads, empty where nobody was asked. Sends nothing. Raises HistoryRefused; WaldurError in an outage."""
    username = _staff_user(site) if is_staff_needed else ""
    try:
        takes_dates = usages.takes_dates(site.client)
    except WaldurError as error:
        if error.retryable:
            raise
        raise HistoryRefused(words(error)) from error
    if not takes_dates:
        raise HistoryRefused(
            "this Waldur is too old for history: it ignores the date of usage and would add all of it to its present "
            "month; nothing is sent. Load it after the server's upgrade"
        )
    return username


def words(error: SiteAgentError) -> str:
    """What an error says. The token in question is not the configured one."""
    return str(error).replace("waldur_api_token", "the staff token")


def _staff_user(site: Site) -> str:
    try:
        user = me.whoami(site.client)
    except WaldurError as error:
        if error.retryable:
            raise
        raise HistoryRefused(f"{NO_STAFF}, and these cannot be checked: {words(error)}") from error
    if not user.is_staff:
        raise HistoryRefused(
            f"{NO_STAFF}: {user.username} is not staff in Waldur. Use the token of a user who is (`is_staff`); "
            "--no-staff-check lets Waldur decide month by month"
        )
    return user.username
