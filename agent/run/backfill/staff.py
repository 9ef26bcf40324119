# SPDX-License-Identifier: MIT
"""Connect a site with a staff token instead of the offering's own, and check that past months can be loaded.

Waldur takes usage of closed months from staff only. The token is read where it is used, and is sent nowhere else.
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


class BackfillRefused(SiteAgentError):
    """Nothing can be loaded, and another try does not help."""


def token_in_file(offering: Offering) -> Secret:
    """Return the token in the offering's `staff_token_file` on this host. Raises BackfillRefused."""
    if offering.staff_token_file is None:
        raise BackfillRefused(
            f"offering {offering.name} has no `staff_token_file` in the configuration of this host: give it there, or "
            "load with --local"
        )
    findings = Findings()
    token = secret_in(offering.staff_token_file, "staff_token_file", findings)
    if token is None or has_errors(findings.problems):
        sentences = "; ".join(problem.message for problem in findings.problems)
        raise BackfillRefused(f"staff_token_file of offering {offering.name}: {sentences}")
    for problem in findings.problems:
        log.warning("%s", problem)
    return Secret(token)


def connect(settings: Settings, offering: Offering, token: Secret | None) -> Site:
    """Return the offering's site with this token, or with its own where `token` is None.

    Raises ConfigError, and BackfillRefused where its backend reports no usage.
    """
    name = offering.backend_of(MODE)
    if not name:
        raise BackfillRefused(
            f"{UNSUPPORTED}: offering {offering.name} has no `reporting_backend`; give it one (slurm, moab)"
        )
    if token and not (token.reveal().isascii() and token.reveal().isprintable()):
        raise BackfillRefused("the staff token has a line break or a letter that no token has: copy it again")
    access = replace(offering.access, token=token, oidc=None) if token else offering.access
    with_staff = replace(offering, access=access)
    site = sites.connect(settings, with_staff, MODE)
    if not isinstance(site.backend, UsageReader):
        raise BackfillRefused(
            f"{UNSUPPORTED}: `reporting_backend: {name}` of offering {offering.name} does not report what was used in "
            "a month; take one that does (slurm, moab)"
        )
    return replace(site, client=sites.client(with_staff, USER_AGENT))


def check(site: Site, *, is_staff_needed: bool) -> str:
    """Check the token and the server. Return the name of the staff user, empty without `is_staff_needed`.

    Raises BackfillRefused, and WaldurError in an outage.
    """
    username = ""
    if is_staff_needed:
        try:
            user = me.whoami(site.client)
        except WaldurError as error:
            if error.retryable:
                raise
            raise BackfillRefused(f"{NO_STAFF}, and these cannot be checked: {error_text(error)}") from error
        if not user.is_staff:
            raise BackfillRefused(
                f"{NO_STAFF}: {user.username} is not staff in Waldur. Use the token of a user who is (`is_staff`); "
                "--no-staff-check lets Waldur decide month by month"
            )
        username = user.username
    try:
        takes_dates = usages.takes_dates(site.client)
    except WaldurError as error:
        if error.retryable:
            raise
        raise BackfillRefused(error_text(error)) from error
    if not takes_dates:
        raise BackfillRefused(
            "this Waldur is too old for past months: it ignores the date of usage and would add all of it to its "
            "present month; nothing is sent. Load it after the server's upgrade"
        )
    return username


def error_text(error: SiteAgentError) -> str:
    """Return the text of an error, with the staff token named where the configured token is meant."""
    return str(error).replace("waldur_api_token", "the staff token")
