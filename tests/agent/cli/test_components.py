# SPDX-License-Identifier: MIT
"""`load-components`, and the reference's script for it: a table of what was created, updated or unchanged."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.server.faults import Fault
from tests.agent.cli.conftest import Command
from tests.agent.cli.operator_site import OperatorSite, run_program

LOAD = ("load-components",)
CPU = {"measured_unit": "core-hours", "accounting_type": "limit", "label": "CPU", "unit_factor": 60}
COMPONENTS: dict[str, Any] = {
    "cpu": CPU,
    "mem": {**CPU, "label": "RAM", "measured_unit": "GB-hours", "limit": 500},
    "node": {**CPU, "label": "Nodes", "accounting_type": "usage", "min_value": 1},
}


def rows(out: str) -> dict[str, tuple[str, str]]:
    """Component -> result and what, from the table."""
    cells = [line.strip("│").split("│", 2) for line in out.splitlines() if line.startswith("│")]
    return {name.strip(): (result.strip(), what.strip()) for name, result, what in cells}


def configure(site: OperatorSite, **components: Any) -> str:
    return site.configure(components={**COMPONENTS, **components})


def in_waldur(site: OperatorSite) -> dict[str, Any]:
    offering = site.waldur.store.offerings[site.waldur.seed.offering_uuid]
    return {component.type: component for component in offering.components}


def test_created_updated_unchanged(site: OperatorSite, command: Command) -> None:
    said = command(*LOAD, "-c", configure(site))
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[0].strip() == "Test SLURM"
    assert rows(said.out) == {
        "cpu": ("unchanged", "Waldur has it as it is configured"),
        "mem": ("updated", "name: Memory -> RAM, limit_amount: None -> 500"),
        "node": (
            "created",
            "type: node, name: Nodes, measured_unit: core-hours, billing_type: usage, min_value: 1",
        ),
    }
    there = in_waldur(site)
    assert set(there) == {"cpu", "mem", "gpu", "node"}, "gpu is Waldur's own and stays"
    assert (there["mem"].name, there["mem"].limit_amount) == ("RAM", 500)
    assert there["mem"].unit_factor == 61440, "factors are the site's own business"


def test_the_second_time_all_are_unchanged(site: OperatorSite, command: Command) -> None:
    file = configure(site)
    assert command(*LOAD, "-c", file).code == 0
    site.waldur.requests.reset()
    said = command(*LOAD, "-c", file)
    assert {name: result for name, (result, _) in rows(said.out).items()} == dict.fromkeys(
        COMPONENTS, "unchanged"
    )
    assert site.waldur.requests.counts() == {"GET marketplace-provider-offerings/{uuid}/": 1}


def test_prepaid_components_and_periods(site: OperatorSite, command: Command) -> None:
    """`renewal_duration_step` is of servers after 8.0.5."""
    months = {"min_prepaid_duration": 1, "max_prepaid_duration": 36, "renewal_duration_step": 3}
    file = configure(
        site,
        cpu={**CPU, "accounting_type": "one", **months},
        mem={**COMPONENTS["mem"], "limit_period": "year"},
        gpu={**CPU, "label": "GPU", "limit_period": "quarter"},
    )
    assert command(*LOAD, "-c", file).code == 0
    there = in_waldur(site)
    bought = there["cpu"]
    assert (bought.billing_type, bought.is_prepaid, bought.limit_period) == ("one", True, "month")
    assert (bought.min_prepaid_duration, bought.max_prepaid_duration) == (1, 36)
    assert {name: there[name].limit_period for name in ("mem", "gpu")} == {
        "mem": "annual",
        "gpu": "quarterly",
    }
    results = {name: result for name, (result, _) in rows(command(*LOAD, "-c", file).out).items()}
    assert set(results.values()) == {"unchanged"}


def test_json(site: OperatorSite, command: Command) -> None:
    (offering,) = command(*LOAD, "--json", "-c", configure(site)).document()["offerings"]
    assert set(offering) == {"offering", "name", "components", "skipped", "error"}
    assert offering["skipped"] is None
    by_name = {item["component"]: item for item in offering["components"]}
    assert {name: item["result"] for name, item in by_name.items()} == {
        "cpu": "unchanged",
        "mem": "updated",
        "node": "created",
    }
    assert by_name["mem"]["differences"] == {"name": ["Memory", "RAM"], "limit_amount": [None, 500]}


LEFT_ALONE = [
    ({"paused": True}, "the offering is paused by `paused: true` in the configuration"),
    ({"mode": "observe"}, "mode observe"),
]


@pytest.mark.parametrize(("policy", "why"), LEFT_ALONE)
def test_nothing_is_written_to_an_offering_that_is_left_alone(
    site: OperatorSite, command: Command, policy: dict[str, object], why: str
) -> None:
    """The changes are shown, so that the command can be tried next to another agent."""
    file = site.configure(components=COMPONENTS, policy=policy)
    before = {name: component.name for name, component in in_waldur(site).items()}
    site.waldur.requests.reset()
    said = command(*LOAD, "-c", file)
    assert said.code == 1, "Waldur does not have what is configured"
    assert {name: result for name, (result, _) in rows(said.out).items()} == {
        "cpu": "unchanged",
        "mem": "would be updated",
        "node": "would be created",
    }
    assert rows(said.out)["mem"][1] == "name: Memory -> RAM, limit_amount: None -> 500"
    assert said.out.splitlines()[-1] == f"Test SLURM: nothing is changed in Waldur: {why}"
    assert set(site.waldur.requests.counts()) == {"GET marketplace-provider-offerings/{uuid}/"}
    assert {name: component.name for name, component in in_waldur(site).items()} == before
    (offering,) = command(*LOAD, "--json", "-c", file).document()["offerings"]
    assert (offering["skipped"], offering["components"][2]["result"]) == (why, "would be created")
    as_before = run_program("-c", file, program="waldur_site_load_components")
    assert (as_before.code, "node" in in_waldur(site)) == (0, False), "as where single components fail"


def test_a_pause_by_command_counts_until_its_end(site: OperatorSite, command: Command) -> None:
    file = configure(site)
    command("pause", site.waldur.seed.offering_uuid, "--reason", "new switch", "-c", file)
    said = command(*LOAD, "-c", file)
    assert (said.code, "node" in in_waldur(site)) == (1, False)
    assert said.out.splitlines()[-1].endswith("(new switch)")
    command("pause", site.waldur.seed.offering_uuid, "--off", "-c", file)
    assert command(*LOAD, "-c", file).code == 0
    command("pause", site.waldur.seed.offering_uuid, "-c", file)
    assert command(*LOAD, "-c", file).code == 0, "there is nothing to change"


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_one_refused_component_does_not_stop_the_others(
    site: OperatorSite, command: Command, options: tuple[str, ...]
) -> None:
    refusal = '{"name": ["Not [this] one."]}'
    site.waldur.inject(
        Fault(path="update_offering_component", status=400, body=refusal, content_type="application/json")
    )
    said = command(*LOAD, *options, "-c", configure(site))
    assert said.code == 1
    assert "Waldur answered 400: name: Not [this] one." in said.out
    assert "node" in in_waldur(site)
    assert in_waldur(site)["mem"].name == "Memory"
    (line,) = said.log()
    assert (line["level"], line["event"].split(":")[0]) == (
        "error",
        f"component mem of offering {site.waldur.seed.offering_uuid}",
    )


def test_a_token_without_the_right(site: OperatorSite, command: Command) -> None:
    site.waldur.people.deny("agent", "OFFERING.UPDATE_COMPONENTS")
    said = command(*LOAD, "-c", configure(site))
    results = {name: result for name, (result, _) in rows(said.out).items()}
    assert (said.code, results) == (1, {"cpu": "unchanged", "mem": "failed", "node": "failed"})
    assert "403" in said.out
    assert "lacks the right OFFERING.UPDATE_COMPONENTS" in said.log()[0]["event"]


def test_an_offering_without_components(site: OperatorSite, command: Command) -> None:
    file = site.configure(components={"cpu": CPU}, backend_components={})
    said = command(*LOAD, "-c", file)
    assert (said.code, said.out) == (0, "Test SLURM: no backend_components are configured\n")


@pytest.mark.parametrize(
    "words",
    [
        ("-m", "report", "-c"),
        ("--mode=membership_sync", "--config"),
        ("-mevent_process", "--config-file"),
    ],
    ids=" ".join,
)
def test_the_script_of_the_reference_with_its_options(site: OperatorSite, words: tuple[str, ...]) -> None:
    said = run_program(*words, configure(site), program="waldur_site_load_components")
    assert said.code == 0, said.err
    assert rows(said.out)["node"][0] == "created"


def test_the_script_of_the_reference_refuses_what_it_refused(site: OperatorSite) -> None:
    said = run_program("-m", "reports", "-c", configure(site), program="waldur_site_load_components")
    assert said.code == 2
    assert "invalid choice: 'reports'" in said.err


def test_the_script_of_the_reference_knows_our_options_too(site: OperatorSite) -> None:
    said = run_program("-c", configure(site), "--json", program="waldur_site_load_components")
    assert said.document()["offerings"][0]["components"][0]["component"] == "cpu"


def test_names_that_the_locale_cannot_print(site: OperatorSite) -> None:
    file = site.configure(
        name="Größe \u2192 1", components={"cpu": {**CPU, "label": "Rechenzeit für \u03b1"}}
    )
    said = run_program(*LOAD, "-c", file, env={"PYTHONIOENCODING": "ascii"}, is_real=True)
    assert said.code == 0, said.err
    assert "Gr\\xf6\\xdfe \\u2192 1" in said.out
