# SPDX-License-Identifier: MIT
"""`explain USER RESOURCE`: from the role in Waldur to the limits on the cluster, on one screen."""

from __future__ import annotations

from pathlib import Path

from agent.cli.options import print_errors, print_json, select_offerings
from agent.cli.output import echo
from agent.cli.settings import load_settings
from agent.config.model import Mode, Offering
from agent.core.errors import SiteAgentError
from agent.run.diagnosis import person
from agent.run.diagnosis.person import Explanation
from agent.run.site import connect


def command(
    user: str, resource_name: str, config_file: Path | None, offering_uuid: str | None, as_json: bool
) -> int:
    settings = load_settings(config_file)
    errors: list[tuple[Offering, SiteAgentError]] = []
    for offering in select_offerings(settings, offering_uuid):
        if not offering.backend_of(Mode.MEMBERSHIP_SYNC):
            continue
        try:
            site = connect(settings, offering, Mode.MEMBERSHIP_SYNC)
            resource = person.find_resource(site, resource_name)
            found = person.explain(site, user, resource) if resource else None
        except SiteAgentError as error:
            errors.append((offering, error))
            continue
        if found is not None:
            print_errors(errors)
            if as_json:
                print_json(_document(found))
                return 0 if found.is_fine else 1
            echo(f"{found.user} and {found.resource.name}")
            for link in found.links:
                mark = "x" if link.broken else " "
                echo(f"  {mark} {link.name + ':':<18}{link.found}", fg="red" if link.broken else None)
            for line in found.coming:
                echo(f"    {'next pass:':<18}{line}")
            echo(found.verdict, fg="green" if found.is_fine else "red")
            return 0 if found.is_fine else 1
    if errors:
        print_errors(errors)
        return 1
    raise SiteAgentError(
        f"no offering of the configuration with a membership_sync_backend has a resource {resource_name!r} in Waldur: "
        "name it by its account, name, slug or uuid"
    )


def _document(found: Explanation) -> dict[str, object]:
    return {
        "user": found.user,
        "resource": found.resource.uuid,
        "account": found.resource.backend_id,
        "is_fine": found.is_fine,
        "verdict": found.verdict,
        "chain": [
            {"link": link.name, "found": link.found, "broken": link.broken or None} for link in found.links
        ],
        "next_pass": list(found.coming),
    }
