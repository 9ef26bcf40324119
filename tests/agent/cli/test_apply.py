# SPDX-License-Identifier: MIT
"""`plan --out`, `apply` and `drift`: what was looked at is what happens, or nothing does."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.agent.cli.conftest import Command
from tests.agent.cli.operator_site import UNKNOWN, OperatorSite

PLAN = ("plan", "order_process")


@pytest.fixture
def config(site: OperatorSite) -> str:
    return site.configure()


@pytest.fixture
def plan(site: OperatorSite, command: Command, config: str, tmp_path: Path) -> Path:
    """A file with the plan of one create order."""
    site.place("one")
    path = tmp_path / "plan.json"
    said = command(*PLAN, "--out", str(path), "-c", config)
    assert said.code == 0
    assert said.out.startswith("# Test SLURM\napprove order")
    assert f"`apply {path}` carries it out until 20" in said.err
    return path


def changed(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_a_plan_that_was_looked_at_is_carried_out_once(
    site: OperatorSite, command: Command, config: str, plan: Path
) -> None:
    assert stat.S_IMODE(os.stat(plan).st_mode) == 0o600
    said = command("apply", str(plan), "-c", config)
    assert (said.code, said.out) == (0, "Test SLURM: 9 actions of 9 done\n")
    assert "a_one" in site.cluster()
    again = command("apply", str(plan), "-c", config)
    assert again.code == 1
    assert "has moved since the plan was made, so nothing is done" in again.err


def test_json_is_that_of_a_pass(command: Command, config: str, plan: Path) -> None:
    document = command("apply", str(plan), "--json", "-c", config).document()
    assert document["orders"] == {"done": 1}


def test_it_is_refused_when_waldur_moved(
    site: OperatorSite, command: Command, config: str, plan: Path
) -> None:
    other = site.place("two")
    before = (site.orders_and_resources(), site.cluster())
    said = command("apply", str(plan), "-c", config)
    assert said.code == 1
    assert f"New: approve order {other}" in said.err
    assert (site.orders_and_resources(), site.cluster()) == before


def test_it_is_refused_when_the_cluster_moved(
    site: OperatorSite, command: Command, config: str, plan: Path, tmp_path: Path
) -> None:
    """Another user has made one of the accounts since then."""
    first = next(a for a in json.loads(plan.read_text())["actions"] if a["action"] == "CreateAccount")
    elsewhere = tmp_path / "elsewhere.json"
    script = command(*PLAN, "--commands", "-c", config).out.splitlines()[1:]
    elsewhere.write_text("\n".join(script))
    make = next(line for line in script if f"name={first['account']}" in line)
    assert os.system(f"{make} >/dev/null") == 0
    said = command("apply", str(plan), "-c", config)
    assert said.code == 1
    assert f"Not needed any more: create account {first['account']} below root" in said.err


@pytest.mark.parametrize(
    ("values", "code", "sentence"),
    [
        ({"offering": UNKNOWN}, 2, f"the plan is for offering {UNKNOWN}, which is not in"),
        ({"expires": "2020-01-01T00:00:00Z"}, 1, "the plan has expired (2020-01-01T00:00:00Z)"),
        ({"format": 2}, 1, "is no file that `plan --out` has written (format 2)"),
        ({"mode": "everything"}, 1, "is no file that `plan --out` has written"),
        ({"mode": "membership_sync"}, 2, "Test SLURM has no backend for membership_sync"),
        ({"actions": [{"action": "Explode"}]}, 1, "is no file that `plan --out` has written ('Explode')"),
        ({"actions": []}, 1, "has moved since the plan was made"),
    ],
)
def test_files_that_are_not_carried_out(
    site: OperatorSite,
    command: Command,
    config: str,
    plan: Path,
    values: dict[str, Any],
    code: int,
    sentence: str,
) -> None:
    changed(plan, **values)
    before = (site.orders_and_resources(), site.cluster())
    said = command("apply", str(plan), "-c", config)
    assert said.code == code
    assert sentence in said.err
    assert (site.orders_and_resources(), site.cluster()) == before


def test_a_file_of_another_kind_and_no_file(command: Command, config: str, tmp_path: Path) -> None:
    other = tmp_path / "x"
    other.write_bytes(b"\xff\x00")
    assert "is no file that `plan --out` has written" in command("apply", str(other), "-c", config).err
    assert "No such file" in command("apply", str(tmp_path / "none"), "-c", config).err


def test_the_policy_has_the_last_word(site: OperatorSite, command: Command, plan: Path) -> None:
    """A pause that came after the plan: nothing of it would be planned now."""
    config = site.configure(policy={"paused": True})
    said = command("apply", str(plan), "-c", config)
    assert said.code == 1
    assert "has moved since" in said.err
    assert site.cluster() == ""


def test_a_plan_of_several_offerings_goes_into_no_file(
    site: OperatorSite, command: Command, tmp_path: Path
) -> None:
    config = site.configure_several({}, {"waldur_offering_uuid": UNKNOWN})
    said = command(*PLAN, "--out", str(tmp_path / "p"), "-c", config)
    assert said.code == 2
    assert "choose it with --offering" in said.err


def test_a_file_that_cannot_be_written(command: Command, config: str, tmp_path: Path) -> None:
    said = command(*PLAN, "--out", str(tmp_path / "no" / "p"), "-c", config)
    assert (said.code, "cannot be written: No such file" in said.err) == (1, True)


# Drift ----------------------------------------------------------------------------------------------


def test_no_drift(command: Command, config: str) -> None:
    said = command("drift", "--exit-code", "-c", config)
    assert (said.code, said.out) == (0, "# Test SLURM, order_process: no drift\n")


def test_drift_counts_and_lists_and_changes_nothing(
    site: OperatorSite, command: Command, config: str
) -> None:
    site.place("one")
    before = (site.orders_and_resources(), site.cluster())
    said = command("drift", "--exit-code", "-c", config)
    first = said.out.splitlines()[0]
    assert said.code == 3
    assert first.startswith("# Test SLURM, order_process: 9 differences (2 x add member, 1 x approve order")
    (report,) = command("drift", "--json", "-c", config).document()["drift"]
    assert (report["mode"], report["differences"]) == ("order_process", 9)
    assert report["by_kind"]["create account"] == 3
    assert (site.orders_and_resources(), site.cluster()) == before


def test_what_the_policy_leaves_out_is_drift_too(site: OperatorSite, command: Command) -> None:
    site.place("one")
    config = site.configure(policy={"mode": "observe"})
    said = command("drift", "--exit-code", "-c", config)
    assert said.code == 3
    assert "9 differences" in said.out
    assert "skipped: approve order" in said.out


def test_an_offering_that_cannot_be_read_is_an_error_and_the_others_are_reported(
    site: OperatorSite, command: Command
) -> None:
    config = site.configure_several({}, {"name": "Other", "waldur_api_token": "wrong"})
    tree = yaml.safe_load(Path(config).read_text())
    assert len(tree["offerings"]) == 2
    said = command("drift", "-c", config)
    assert said.code == 1
    assert "# Test SLURM, order_process: no drift" in said.out
    assert "error: Other" in said.err
