# SPDX-License-Identifier: MIT
"""`doctor` and `diagnostics` against a real SLURM: what is wrong is found, with what to do, and ends no other check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.operator_site import Ended
from tests.diagnosis.conftest import Site

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
    said = site.run("diagnostics", "--json")
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
        "TRES",
        "SLURM privileges",
        "clock of slurmctld",
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
    assert (checks["components"]["state"], checks["SLURM privileges"]["state"]) == ("problem", "ok")


def test_who_may_not_write_in_slurm_is_told(site: Site) -> None:
    """A program in front of sacctmgr is who asks: here it says that it is somebody without a level."""
    folder = site.folder / "bin"
    folder.mkdir()
    prefix = folder / "as-nobody"
    prefix.write_text('#!/bin/sh\n[ "$1" = id ] && echo nobody && exit\nexec "$@"\n')
    prefix.chmod(0o755)
    site.configure(backend={"command_prefix": [str(prefix)]})
    privileges = found(site.run("diagnostics", "--json"))["SLURM privileges"]
    assert privileges["found"] == "nobody has AdminLevel None: sacctmgr refuses its writes"
    assert "adminlevel=Administrator" in privileges["remedy"]


@pytest.fixture
def no_slurmdbd(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """SLURM's commands look for slurmdbd where nobody listens."""
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
def test_slurmdbd_that_is_away_is_told_and_waldur_is_looked_at_all_the_same(site: Site) -> None:
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
        "ok       passes: Test SLURM, order_process: the last pass went well",
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
