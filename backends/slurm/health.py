# SPDX-License-Identifier: MIT
"""What is wrong with a cluster that answers: its name, the accounts that everything hangs below, and who can submit
where no allocation counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from agent.core.checks import Check, ok, problem, warning
from agent.core.model import Health, Snapshot
from backends.slurm.parse import ROOT
from backends.slurm.schema import SlurmSettings

DEFAULT_ACCOUNT = "default account"
NAMED_AT_MOST = 5


def health(
    settings: SlurmSettings, version: str, clusters: Collection[str], tree: Callable[[], Snapshot]
) -> Health:
    """Return what was found; `clusters` are those that slurmdbd knows. Raises BackendError."""
    cluster = settings.cluster_name or "default"
    if settings.cluster_name and settings.cluster_name not in clusters:
        known = ", ".join(clusters) or "no cluster"
        wrong = f"cluster_name is {settings.cluster_name!r}; slurmdbd knows {known}"
        return Health(version, cluster, (wrong,))
    snapshot = tree()
    warnings = []
    if not settings.cluster_name:
        warnings.append("cluster_name is not set; with more than one cluster in slurmdbd it must be")
    problems = [
        f"{key} {account!r} has no account on cluster {cluster}: create it first"
        for key in ("root_account", "default_account", "parent_account")
        if (account := getattr(settings, key)) and account not in snapshot.accounts
    ]
    return Health(version, cluster, tuple(problems), tuple(warnings))


def default_account(settings: SlurmSettings, tree: Snapshot) -> Check:
    """Check that members cannot submit in the account that the settings name as their default."""
    name, account = DEFAULT_ACCOUNT, settings.default_account
    top = settings.parent_account or settings.root_account
    if tree.refuses_jobs(top):
        said = (
            f"{top} takes no jobs (GrpSubmitJobs=0), nor does any account below it, so no allocation either"
        )
        return problem(
            name, said, "name another account above customers' (`root_account`), or let this one take jobs"
        )
    if tree.refuses_jobs(account):
        return ok(name, f"{account} takes no jobs: members submit with -A and their allocation's account")
    users = sorted(tree.users_of(account) - {ROOT})
    if not users:
        return ok(name, f"no member can submit in {account}: the default is an allocation's account")
    more = ", ..." if len(users) > NAMED_AT_MOST else ""
    return warning(
        name,
        f"{', '.join(users[:NAMED_AT_MOST])}{more} ({len(users)} in all) can submit in {account}, where no limit of "
        "Waldur counts and no usage is reported; where it is their default account, also without -A",
        f"for who does not administer SLURM: `sacctmgr modify user USER set DefaultAccount=` an allocation's, then "
        f"`sacctmgr remove user USER account={account}`",
    )
