# SPDX-License-Identifier: MIT
"""`init`: a first file that `config-check` takes, of what Waldur and this host have; each way in which it cannot be."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from agent.config.findings import Findings
from agent.config.sources import secret_in
from agent.core.model import OfferingFacts, WaldurComponent
from agent.run.service.first_file import components_of, composed, unit_factor
from backends.base import FoundCluster
from rig.emulator import emulated_cluster
from simulator.demo.parts import free_port
from simulator.mam.install import StandIn
from simulator.server.waldur import SimulatedWaldur
from tests.agent.cli.conftest import Command

TOKEN = "WALDUR_API_TOKEN"


@pytest.fixture(scope="module")
def world(quick_emulator: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedWaldur]:
    """A Waldur with one offering, and a host with the emulated SLURM's programs. `init` changes neither."""
    _, environment = emulated_cluster(tmp_path_factory.mktemp("cluster"))
    with pytest.MonkeyPatch.context() as patch, SimulatedWaldur() as server:
        for name, value in {**environment, "PATH": f"{quick_emulator}:/usr/bin:/bin"}.items():
            patch.setenv(name, value)
        patch.setenv("WALDUR_SITE_AGENT_STATE_DIR", str(tmp_path_factory.mktemp("state")))
        yield server


@pytest.fixture
def init(
    world: SimulatedWaldur, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> Command:
    """`init` with the agent's token, for a file in a folder of the test's that it makes itself."""
    monkeypatch.setenv("WALDUR_API_URL", world.url)
    monkeypatch.setenv(TOKEN, world.token())
    return lambda *words: command("init", "-c", str(tmp_path / "etc" / "site.yaml"), *words)


def nothing_written(tmp_path: Path) -> bool:
    return [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_file_passes_the_check_and_plans(
    init: Command, command: Command, tmp_path: Path, world: SimulatedWaldur, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = init()
    assert (ended.code, ended.err) == (0, "")
    # Services do not have the PATH on which it was found.
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    file, token = tmp_path / "etc" / "site.yaml", tmp_path / "etc" / "token"
    assert f"written: {file}: 1 offering on" in ended.out and "by sacctmgr" in ended.out
    assert [path.stat().st_mode & 0o777 for path in (file, token)] == [0o600, 0o600]
    assert sorted(path.name for path in file.parent.iterdir()) == ["site.yaml", "token"]
    assert world.token() not in file.read_text()
    assert secret_in(token, "", Findings()) == world.token()
    (offering,) = yaml.safe_load(file.read_text())["offerings"]
    assert offering["waldur_offering_uuid"] == world.seed.offering_uuid
    assert offering["backend_components"].keys() == {"cpu", "mem", "gpu"}
    assert offering["backend_components"]["gpu"]["target_components"] == {"gres/gpu": {"factor": 60}}
    monkeypatch.delenv(TOKEN)
    checked = command("config-check", "-c", str(file))
    assert (checked.code, "the configuration is good" in checked.out) == (0, True), checked.out
    assert command("plan", "order_process", "-c", str(file)).code == 0
    assert command("plan", "report", "-c", str(file)).code == 0


def test_a_file_that_is_there_stays_until_it_is_to_be_replaced(init: Command, tmp_path: Path) -> None:
    file, token = tmp_path / "etc" / "site.yaml", tmp_path / "etc" / "token"
    file.parent.mkdir()
    file.write_text("# mine\n")
    refused = init()
    assert (refused.code, file.read_text(), token.exists()) == (1, "# mine\n", False)
    assert f"{file} is there already, and stays as it is" in refused.err and "--force" in refused.err
    file.unlink()
    token.write_text("another-token\n")
    refused = init()
    assert (refused.code, token.read_text(), file.exists()) == (1, "another-token\n", False)
    assert f"{token} holds another token" in refused.err
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WALDUR_SITE_AGENT_BROKER_URL", "none")
        assert "nothing is written" in init("--force").err
    assert (token.read_text(), file.exists()) == ("another-token\n", False)
    file.write_text("# mine\n")
    group = 12345 if os.geteuid() == 0 else file.stat().st_gid
    for path in (file, token):
        os.chown(path, -1, group)
        path.chmod(0o644)
    assert init("--force").code == 0
    assert file.read_text() != "# mine\n" and token.read_text() != "another-token\n"
    found = [(each.st_mode & 0o777, each.st_gid) for each in (file.stat(), token.stat())]
    assert found == [(0o644, group), (0o640, group)]


@pytest.mark.parametrize("path", ["", "/other/"])
def test_a_wrong_address_is_named(path: str, init: Command, tmp_path: Path, world: SimulatedWaldur) -> None:
    """Nobody listens there, or something else does."""
    url = f"{world.root_url}{path}" if path else f"http://127.0.0.1:{free_port()}"
    ended = init("--url", url)
    assert (ended.code, nothing_written(tmp_path)) == (1, True)
    assert "no answer" in ended.err or "404" in ended.err
    assert f"Waldur's address is {url.rstrip('/')}/" in ended.err
    assert "Is this the address of Waldur's API?" in ended.err


@pytest.mark.parametrize("url", ["ftp://waldur.example.com", "https://[", "https:///api/"])
def test_what_is_no_address_is_a_wrong_command_line(url: str, init: Command, tmp_path: Path) -> None:
    ended = init("--url", url)
    assert (ended.code, "--url" in ended.err, nothing_written(tmp_path)) == (2, True, True)


def test_a_token_that_is_refused_or_sees_nothing_is_named(
    init: Command, tmp_path: Path, world: SimulatedWaldur, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN, "0" * 40)
    refused = init()
    assert (refused.code, nothing_written(tmp_path)) == (1, True)
    assert "401" in refused.err and "Waldur does not take this token" in refused.err
    monkeypatch.setenv(TOKEN, world.token("consumer"))
    empty = init()
    assert (empty.code, nothing_written(tmp_path)) == (1, True)
    assert "no offering of which it is a provider: make the token's user an owner" in empty.err


def test_a_token_without_rights_is_written_and_reported(
    init: Command, tmp_path: Path, world: SimulatedWaldur, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "manager"
    token.write_text(world.token("agent-offering-manager"))
    token.chmod(0o600)
    monkeypatch.delenv(TOKEN)
    ended = init("--token-file", str(token))
    assert ended.code == 1 and "ORDER.APPROVE" in ended.err
    (offering,) = yaml.safe_load((tmp_path / "etc" / "site.yaml").read_text())["offerings"]
    assert offering["waldur_api_token_file"] == str(token)


def test_what_is_not_given_and_cannot_be_asked_for_is_a_wrong_command_line(
    init: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN)
    ended = init()
    assert (ended.code, nothing_written(tmp_path)) == (2, True)
    assert f"token is needed: --token-file, or the variable {TOKEN}" in ended.err
    monkeypatch.delenv("WALDUR_API_URL")
    assert "address of waldur is needed: --url" in init().err


def test_a_host_without_a_cluster_is_named_before_waldur_is_asked(
    init: Command, tmp_path: Path, world: SimulatedWaldur, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dict(world.request_counts())
    monkeypatch.setenv("PATH", str(tmp_path))
    ended = init()
    assert (ended.code, nothing_written(tmp_path)) == (1, True)
    assert "neither sacctmgr, nor slurmrestd, nor mam-list-accounts" in ended.err
    broken = tmp_path / "sacctmgr"
    broken.write_text("#!/bin/sh\necho 'sacctmgr: error: Connection refused' >&2\nexit 1\n")
    broken.chmod(0o755)
    silent = init()
    assert (silent.code, "the accounting database does not answer" in silent.err) == (1, True), silent.err
    assert dict(world.request_counts()) == before


def test_a_host_with_two_kinds_of_clusters_asks_which(
    init: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mam = StandIn(tmp_path / "mam").bin
    monkeypatch.setenv("PATH", f"{mam}:{os.environ['PATH']}")
    assert init().code == 2
    ended = init("--cluster", "moab")
    # The seeded offering sells cores: MOAB knows deposits only, and nothing is written that cannot be used.
    assert ended.code == 1 and "MOAB needs the component `deposit`" in ended.err
    assert not (tmp_path / "etc" / "site.yaml").exists() and not (tmp_path / "etc" / "token").exists()


@pytest.mark.parametrize(
    ("component", "unit", "minutes"),
    [
        ("cpu", "core-hours", 60), ("cpu", "CPU hours", 60), ("cpu", "k-Hours", 60_000), ("cpu", "minutes", 1),
        ("mem", "GB-hours", 61_440), ("mem", "k-GB-Hours", 61_440_000), ("mem", "MB minutes", 1),
        ("gres/gpu", "GPU-hours", 60), ("node", "node-days", 1440),
        ("cpu", "million hours", None), ("mem", "hours", None), ("cpu", "GB-hours", None), ("cpu", "", None),
    ],
)  # fmt: skip
def test_units_that_are_read_with_certainty_have_a_factor(
    component: str, unit: str, minutes: int | None
) -> None:
    assert unit_factor(component, unit) == minutes


def test_what_cannot_be_known_is_written_with_a_note() -> None:
    cluster = FoundCluster("one", "sacctmgr", {"cluster_name": "one"}, frozenset({"cpu", "mem", "gres/gpu"}))
    named = {"type": "nodes", "measured_unit": "nodes", "billing_type": "limit", "name": "No\nde"}
    facts = OfferingFacts("e" * 32, "One\n- two", components=(WaldurComponent("", "nodes", named),))
    first = composed([facts], url="https://w/api/", token_file="/t", backend="slurm", cluster=cluster)
    assert len(first.notes) == 1 and "target_components" in first.notes[0]
    lines = [line for line in first.text.splitlines() if first.notes[0] in line]
    assert lines == [f"# Look at it: {first.notes[0]}"]
    (offering,) = yaml.safe_load(first.text)["offerings"]
    assert offering["name"] == "One\n- two"
    assert offering["backend_components"]["nodes"]["unit_factor"] == 1
    bare, notes = components_of(OfferingFacts("e" * 32), cluster)
    assert (list(bare), notes) == (["cpu", "mem", "gres/gpu"], [])
