# SPDX-License-Identifier: MIT
"""`doctor` and `diagnostics` against a real SLURM: what is wrong is found, with what to do, and ends no other check."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from simulator.server.faults import Fault, FaultKind
from tests.agent.cli.operator_site import Ended
from tests.agent.run.diagnosis.conftest import Site

PART = {"measured_unit": "h", "accounting_type": "limit", "label": "GPU", "unit_factor": 60}


def found(said: Ended) -> dict[str, dict[str, Any]]:
    """The last of each check, the worst where there are several."""
    order = {"ok": 0, "unknown": 1, "warning": 2, "problem": 3}
    checks = sorted(said.document()["checks"], key=lambda check: order[check["state"]])
    return {check["check"]: check for check in checks}


def edit(config: str, **offering: Any) -> None:
    path = Path(config)
    tree = yaml.safe_load(path.read_text())
    for key, value in offering.items():
        if isinstance(value, dict):
            tree["offerings"][0][key] |= value
        else:
            tree["offerings"][0][key] = value
    path.write_text(yaml.safe_dump(tree))


def test_all_is_well_with_an_offering_but_a_name_of_a_component(site: Site) -> None:
    site.waldur.requests.reset()
    said = site.run("diagnostics", "--json")
    asked = site.waldur.requests
    # The account, and Waldur's clock, which is not that of an earlier answer.
    assert (asked.count("GET users/me/"), asked.count("GET marketplace-provider-offerings/*")) == (2, 1)
    checks = found(said)
    assert {name: check["found"] for name, check in checks.items() if check["state"] != "ok"} == {}
    assert list(checks) == [
        "Waldur token",
        "Waldur rights",
        "offering",
        "components",
        "orders",
        "clock of Waldur",
        "cluster (slurm)",
        "release",
        "TRES",
        "SLURM privileges",
        "clock of slurmctld",
        "default account",
    ]
    assert checks["SLURM privileges"]["found"] == "root is Administrator"
    assert (said.code, said.document()["ok"]) == (0, True)
    edit(site.config, backend_components={"mem": {**PART, "label": "Memory of nodes", "unit_factor": 61440}})
    said = site.run("diagnostics", "--json")
    component = found(said)["components"]
    assert component["state"] == "warning"
    assert "'Memory' in Waldur, 'Memory of nodes' here" in component["found"]
    assert "load-components" in component["remedy"]
    assert said.code == 0


def test_each_fault_is_found_and_ends_no_other_check(site: Site) -> None:
    components = {"gpu": PART, "mem": {**PART, "label": "Memory of nodes", "unit_factor": 61440}}
    edit(
        site.config,
        waldur_api_token=site.waldur.token("consumer"),
        backend_settings={"cluster_name": "elsewhere"},
        backend_components=components,
    )
    site.waldur.site.advance(600)
    said = site.run("diagnostics", "--json")
    checks = found(said)
    assert said.code == 1
    assert checks["Waldur token"]["state"] == "ok"
    rights = checks["Waldur rights"]
    assert (rights["state"], rights["found"]) == (
        "problem",
        "consumer may not see the offering: it has no role of it or its provider, or waldur_offering_uuid is wrong",
    )
    assert "CUSTOMER.OWNER" in rights["remedy"]
    assert checks["cluster (slurm)"]["found"] == "cluster_name is 'elsewhere'; slurmdbd knows test"
    assert "limits gpu, which the cluster does not have" in checks["TRES"]["found"]
    assert "AccountingStorageTRES" in checks["TRES"]["remedy"]
    clock = checks["clock of Waldur"]
    assert (clock["state"], "ahead of this host's" in clock["found"]) == ("problem", True)
    assert (checks["offering"]["state"], checks["SLURM privileges"]["state"]) == ("problem", "ok")
    assert (checks["components"]["state"], checks["components"]["found"]) == (
        "unknown",
        "not looked at: as for offering",
    )


RIGHTS = ["RESOURCE.SET_BACKEND_ID", "RESOURCE.SET_BACKEND_METADATA", "RESOURCE.SET_USAGE"]
REST = ["OFFERING.UPDATE", "OFFERING.UPDATE_COMPONENTS", "OFFERING.UPDATE_USER", "PROVIDER.LIST_PERMISSIONS"]
SINCE_8 = ["RESOURCE.SET_STATE", "OFFERING.MANAGE_BACKEND_RESOURCES"]
ALL = ["ORDER.APPROVE", *RIGHTS, *REST, *SINCE_8]
ROLES: list[tuple[list[str], str, str]] = [
    (ALL, "ok", "custom (SITE.ROLE of the provider) has all rights that are needed"),
    ([*RIGHTS, *REST, *SINCE_8], "problem", "custom (SITE.ROLE of the provider) lacks ORDER.APPROVE"),
    (
        ["RESOURCE.SET_USAGE"],
        "problem",
        "custom (SITE.ROLE of the provider) lacks ORDER.APPROVE, RESOURCE.SET_BACKEND_ID, "
        "RESOURCE.SET_BACKEND_METADATA",
    ),
    (
        ["ORDER.APPROVE", *RIGHTS, "OFFERING.UPDATE", *SINCE_8],
        "warning",
        "custom (SITE.ROLE of the provider) lacks OFFERING.UPDATE_COMPONENTS, OFFERING.UPDATE_USER, "
        "PROVIDER.LIST_PERMISSIONS: docs/rights.md says what for",
    ),
]


@pytest.mark.parametrize(("permissions", "state", "words"), ROLES)
def test_the_rights_of_a_role_are_those_that_waldur_lists(
    site_without_orders: Site, permissions: list[str], state: str, words: str
) -> None:
    site = site_without_orders
    token = site.waldur.people.add_provider_user("custom", "SITE.ROLE", permissions=permissions)
    edit(site.config, waldur_api_token=token, reporting_backend="slurm")
    rights = found(site.run("diagnostics", "--json"))["Waldur rights"]
    assert (rights["state"], rights["found"]) == (state, words)


def test_a_manager_of_the_offering_approves_no_orders_and_a_check_says_so(site_without_orders: Site) -> None:
    site = site_without_orders
    edit(site.config, waldur_api_token=site.waldur.token("agent-offering-manager"))
    rights = found(site.run("diagnostics", "--json"))["Waldur rights"]
    assert (rights["state"], rights["found"]) == (
        "problem",
        "agent-offering-manager (OFFERING.MANAGER of the offering) lacks ORDER.APPROVE",
    )
    edit(site.config, order_processing_backend="")
    said = [
        check["found"]
        for check in site.run("diagnostics", "--json").document()["checks"]
        if (check["check"], check["state"]) == ("Waldur rights", "warning")
    ]
    assert len(said) == 2
    assert "has RESOURCE.SET_BACKEND_METADATA at the offering only: not every server lets it" in said[0]


def test_where_the_roles_cannot_be_read_no_right_is_called_good(site_without_orders: Site) -> None:
    site = site_without_orders
    token = site.waldur.people.add_provider_user("custom", "SITE.ROLE", permissions=ALL)
    edit(site.config, waldur_api_token=token)
    site.waldur.inject(Fault(path="/roles/", status=403, times=9))
    rights = found(site.run("diagnostics", "--json"))["Waldur rights"]
    assert rights["state"] == "unknown"
    assert "what the roles of custom (SITE.ROLE) may do cannot be read" in rights["found"]


def test_a_check_names_who_may_not_write_in_slurm(site: Site) -> None:
    """A program in front of sacctmgr is who asks: here it says that it is a user without a level."""
    folder = site.folder / "bin"
    folder.mkdir()
    prefix = folder / "as-nobody"
    prefix.write_text('#!/bin/sh\n[ "$1" = id ] && echo nobody && exit\nexec "$@"\n')
    prefix.chmod(0o755)
    site.configure(backend={"command_prefix": [str(prefix)]})
    privileges = found(site.run("diagnostics", "--json"))["SLURM privileges"]
    assert privileges["found"] == "nobody has AdminLevel None: sacctmgr refuses its writes"
    assert "adminlevel=Administrator" in privileges["remedy"]


def test_a_slurmctld_that_is_away_is_a_problem_of_its_own(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried = site.folder / "slurm.conf"
    hurried.write_text(f"{Path(site.slurm.env['SLURM_CONF']).read_text()}MessageTimeout=2\n")
    monkeypatch.setenv("SLURM_CONF", str(hurried))
    site.slurm.stop_slurmctld()
    checks = found(site.run("diagnostics", "--json"))
    site.slurm.start_slurmctld()
    away = checks["clock of slurmctld"]
    assert (away["state"], "slurmctld does not answer" in away["found"]) == ("problem", True)
    assert "no member is removed and nothing ends; the rest goes on" in away["remedy"]
    assert (checks["cluster (slurm)"]["state"], checks["TRES"]["state"]) == ("ok", "ok")


def test_a_check_names_who_can_submit_where_no_allocation_counts(site: Site) -> None:
    """Members joined root by the policy `common` of the reference: on the real one `sbatch` without -A ran there."""
    check = found(site.run("diagnostics", "--json"))["default account"]
    assert (check["state"], check["found"]) == (
        "ok",
        "no member can submit in root: the default is an allocation's account",
    )
    site.sacctmgr("add", "user", f"name={site.members[0]}", "account=a_one", "DefaultAccount=root")
    check = found(site.run("diagnostics", "--json"))["default account"]
    assert check["state"] == "warning"
    assert check["found"].startswith(
        f"{site.members[0]} (1 in all) can submit in root, where no limit of Waldur"
    )
    assert "sacctmgr remove user USER account=root" in check["remedy"]


def test_a_default_account_that_takes_no_jobs_is_well_but_not_above_the_allocations(site: Site) -> None:
    site.sacctmgr("add", "account", "name=no_jobs", "GrpSubmitJobs=0")
    site.sacctmgr("add", "user", f"name={site.members[0]}", "account=no_jobs")
    keys = {"default_account": "no_jobs", "default_account_policy": "common"}
    site.configure(backend={**keys, "root_account": "root"})
    check = found(site.run("diagnostics", "--json"))["default account"]
    assert (check["state"], check["found"]) == (
        "ok",
        "no_jobs takes no jobs: members submit with -A and their allocation's account",
    )
    site.configure(backend=keys)
    check = found(site.run("diagnostics", "--json"))["default account"]
    assert check["state"] == "problem"
    assert check["found"].startswith("no_jobs takes no jobs (GrpSubmitJobs=0), nor does any account below it")


def test_a_token_that_is_refused_is_reported_once_for_an_offering(site: Site) -> None:
    edit(site.config, waldur_api_token="wrong-token-000")
    for mode in ("order_process", "membership_sync"):
        assert site.run("run", mode, "--once").code == 1
    said = site.run("doctor")
    lines = [line for line in said.out.splitlines() if "Waldur answered 401" in line]
    assert [line.split(":")[0].split(maxsplit=1) for line in lines] == [
        ["problem", "passes"],
        ["problem", "Waldur token"],
    ]
    assert "the last pass ended as `ended by an error`: as that of order_process" in said.out
    names = "Waldur rights, offering, components, orders, clock of Waldur"
    assert f"unknown  {names}: not looked at: as for Waldur token" in said.out
    status = site.run("status").out.splitlines()
    assert sum("Waldur answered 401" in line for line in status) == 1
    (order,) = [line for line in status if line.startswith("  order_process: ended by an error")]
    assert order.endswith(" s") and "nothing to do" not in order and "actions" not in order
    place = next(n for n, line in enumerate(status) if line.startswith("  membership_sync: ended by"))
    assert status[place + 1] == "    as above"


AWAY = [Fault(kind=FaultKind.RESET, times=None), Fault(status=503, times=None)]


@pytest.mark.parametrize("away", AWAY)
def test_waldur_that_is_away_is_asked_once_for_all_offerings_and_is_one_problem(
    site_without_orders: Site, away: Fault
) -> None:
    site = site_without_orders
    another = "f" * 32
    path = Path(site.config)
    tree = yaml.safe_load(path.read_text())
    first = tree["offerings"][0]
    settings = {**first["backend_settings"], "allocation_prefix": "other_"}
    more = {"name": "Another", "waldur_offering_uuid": another, "backend_settings": settings}
    tree["offerings"].append(first | more)
    path.write_text(yaml.safe_dump(tree))
    site.waldur.requests.reset()
    site.waldur.inject(away)
    said = site.run("diagnostics", "--json")
    (problem,) = [each for each in said.document()["checks"] if each["state"] == "problem"]
    assert problem["check"] == "Waldur token"
    assert problem["found"].endswith(f"(concerns {first['name']}, Another)")
    of_another = [each for each in said.document()["checks"] if each["offering"] == "Another"]
    assert of_another[0]["found"] == f"not looked at: as for Waldur token of {first['name']}"
    checks = {each["check"]: each for each in said.document()["checks"] if each["offering"] == first["name"]}
    # Each request is sent 4 times.
    assert site.waldur.requests.counts() == {"GET users/me/": 4}
    assert checks["Waldur token"]["state"] == "problem"
    for name in ("Waldur rights", "offering", "components", "orders", "clock of Waldur"):
        assert checks[name]["found"] == "not looked at: as for Waldur token"
    assert checks["cluster (slurm)"]["state"] == "ok"


def test_an_offering_that_cannot_be_read_is_asked_for_once_and_the_rest_is_looked_at(
    site_without_orders: Site,
) -> None:
    site = site_without_orders
    site.waldur.requests.reset()
    site.waldur.inject(Fault(path="/marketplace-provider-offerings/", status=500, times=None))
    checks = found(site.run("diagnostics", "--json"))
    assert site.waldur.requests.count("GET marketplace-provider-offerings/*") == 4
    for name in ("offering", "components"):
        assert checks[name]["found"] == "not looked at: as for Waldur rights"
    assert (checks["orders"]["state"], checks["clock of Waldur"]["state"]) == ("ok", "ok")


def test_an_emulator_before_slurm_on_the_path_is_warned_of(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an installation with the extra `demo` puts it there."""
    emulator = Path(sys.executable).parent / "sacctmgr"
    said = site.run("doctor", "--json").document()["checks"]
    assert not [check for check in said if "an emulator's" in check["found"]]
    monkeypatch.setenv("PATH", f"{emulator.parent}:{os.environ['PATH']}")
    said = site.run("doctor", "--json").document()["checks"]
    (check,) = [check for check in said if "an emulator's" in check["found"]]
    assert (check["check"], check["state"]) == ("packages", "warning")
    assert str(emulator) in check["found"] and "pip uninstall slurm-emulator" in check["remedy"]


@pytest.fixture
def no_slurmdbd(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """SLURM's commands look for slurmdbd where no server listens."""
    folder = Path(site.slurm.env["SLURM_CONF"]).parent
    text = (folder / "slurm.conf").read_text()
    lines = [
        "AccountingStoragePort=9" if line.startswith("AccountingStoragePort=") else line
        for line in text.splitlines()
    ]
    other = site.folder / "slurm.conf"
    other.write_text("\n".join(lines) + "\n")
    monkeypatch.setenv("SLURM_CONF", str(other))


@pytest.mark.usefixtures("no_slurmdbd")
def test_slurmdbd_that_is_away_is_reported_and_waldur_is_looked_at_all_the_same(site: Site) -> None:
    said = site.run("diagnostics", "--json")
    checks = found(said)
    assert said.code == 1
    assert "Connection refused" in checks["cluster (slurm)"]["found"]
    assert "systemctl status slurmdbd" in checks["cluster (slurm)"]["remedy"]
    assert [checks[name]["state"] for name in ("Waldur token", "components", "TRES")] == [
        "ok",
        "ok",
        "problem",
    ]
    document = site.run("diagnose-account", "a_one", "--json").document()
    assert (document["overall_status"], document["waldur_info"]["exists"]) == ("error", True)
    assert "Connection refused" in document["errors"][0]


def test_the_host_is_looked_at_with_its_files_passes_and_broker_also_where_the_file_is_wrong(
    site: Site,
) -> None:
    Path(site.config).chmod(0o666)
    (site.folder / "state").chmod(0o777)
    said = site.run("doctor")
    assert said.code == 1
    lines = said.out.splitlines()
    for expected in (
        "ok       packages: agent, backends, tasks and the other modules are ours",
        f"           do: chmod 0600 {site.config}",
        f"           do: chmod 0700 {site.folder / 'state'}",
        "ok       passes: order_process: the last pass went well",
        "ok       SLURM privileges: root is Administrator",
    ):
        assert expected in lines, said.out
    assert "problem  broker: the broker redis://127.0.0.1:1/0 does not answer" in said.out
    assert lines[-1].endswith("3 problems, 1 warning")
    edit(site.config, waldur_api_url="nowhere")
    said = site.run("doctor", "--json")
    checks = found(said)
    assert said.code == 1
    assert "waldur_api_url" in checks["configuration"]["found"]
    assert checks["packages"]["state"] == "ok"
