# SPDX-License-Identifier: MIT
"""The units of `systemd-conf/`: under the names that sites have, enabled and started as they always were."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.host.unit_files import OLD_UNITS, at_places_of_the_reference
from rig import processes
from rig.parts import require
from rig.processes import wait_until
from rig.unit_process import UnitProcess, sections
from simulator.server.waldur import SimulatedWaldur
from tests import REPOSITORY
from tests.deploy.test_unit_files import KNOWN_TO_219, analyze
from tests.deploy.test_units import site_file
from tests.tasks.emulated import EmulatedSlurm, settings, variables

CONF = REPOSITORY / "systemd-conf"
MADE = {CONF / place: text for place, text in at_places_of_the_reference(REPOSITORY / "systemd").items()}
LEGACY = sorted(path for path in MADE if "legacy" in path.name)
FACTS = Path(os.environ.get("WALDUR_FACTS_DIR", REPOSITORY.parent / "shared"))
SEEDS = sorted((FACTS / "seeds").glob("*.txt"))
COPY = re.compile(
    r"^(?:sudo )?cp (?:\./)?((?:systemd-conf|examples|config-components)\S*) (/etc/\S+)", re.MULTILINE
)
FORMS = ("", "-legacy")
MODES = ("order-process", "report", "membership-sync", "event-process")
OLDEST = [(f"service-{direction}", f"waldur-slurm-service-{direction}") for direction in ("pull", "push")]
# Files, and the names that documents copy them to.
INSTALLED = [
    *(
        (f"agent-{mode}/agent{form}.service", f"waldur-agent-{mode}{form}.service")
        for mode in MODES
        for form in FORMS
    ),
    *((f"{folder}/{name}{form}.service", f"{name}.service") for folder, name in OLDEST for form in FORMS),
    ("agent-report/agent.service", "waldur-site-agent-report.service"),
]
Run = Callable[..., UnitProcess]


def test_the_files_are_those_that_the_generator_makes() -> None:
    there = {path for path in CONF.rglob("*.service") if not path.is_symlink()}
    assert there == set(MADE)
    for path, content in MADE.items():
        assert path.read_text() == content, f"{path}: run `python -m agent.host.unit_files`"


@pytest.mark.skipif(not SEEDS, reason="no documents of the reference")
def test_every_copy_that_a_document_shows_has_its_file() -> None:
    found = {match.groups() for seed in SEEDS for match in COPY.finditer(seed.read_text())}
    assert len(found) >= 15
    assert [source for source, _ in sorted(found) if not (REPOSITORY / source).is_file()] == []
    units = {
        (
            source.removeprefix("systemd-conf/"),
            (Path(place) if place.endswith(".service") else Path(source)).name,
        )
        for source, place in found
        if source.endswith(".service")
    }
    assert units == set(INSTALLED)


class Systemctl:
    """The real one, in a root of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "etc" / "systemd" / "system"
        self.folder.mkdir(parents=True)

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        require("systemctl")
        command = [processes.program("systemctl"), f"--root={self.root}", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.real_part
@pytest.mark.parametrize(("source", "name"), INSTALLED)
def test_a_unit_is_enabled_under_each_name_that_sites_have(source: str, name: str, tmp_path: Path) -> None:
    systemctl = Systemctl(tmp_path)
    shutil.copy(CONF / source, systemctl.folder / name)
    # Also once more, and after a site's own unit of that name was enabled.
    for _ in range(2):
        done = systemctl("enable", name)
        assert done.returncode == 0, done.stderr
    wanted = systemctl.folder / "multi-user.target.wants" / name
    assert wanted.is_symlink()
    (names,) = (unit.names for unit in OLD_UNITS if source in (unit.file, unit.legacy))
    assert name.removesuffix(".service") in names
    for other in (f"{each}.service" for each in names):
        said = systemctl("is-enabled", other)
        assert said.stdout.strip() == ("enabled" if other == name else "alias"), (other, said.stderr)


@pytest.mark.real_part
def test_an_old_name_can_lead_to_the_unit_of_the_cluster(tmp_path: Path) -> None:
    """By the line of docs/migrate.md, and not while a file has the name: what systemctl then refuses it says."""
    systemctl = Systemctl(tmp_path)
    (line,) = re.findall(
        r"^ln -sf (\S+) \S+/(\S+)$", (REPOSITORY / "docs" / "migrate.md").read_text(), re.MULTILINE
    )
    for name in ("waldur-site-worker.service", "waldur-site.target"):
        shutil.copy(REPOSITORY / "systemd" / name, systemctl.folder / name)
    (systemctl.folder / line[1]).symlink_to(line[0])
    assert systemctl("enable", line[0]).returncode == 0
    assert systemctl("is-enabled", line[1]).stdout.strip() == "alias"
    unit = CONF / "agent-report" / "agent.service"
    for name in ("waldur-agent-report.service", "waldur-agent-report-legacy.service"):
        shutil.copy(unit, systemctl.folder / name)
    refused = systemctl("enable", "waldur-agent-report.service")
    assert (refused.returncode, "already exists" in refused.stderr) == (1, True)


@pytest.mark.real_part
@pytest.mark.parametrize("path", sorted(MADE), ids=lambda path: path.name)
def test_systemd_understands_it(path: Path, tmp_path: Path) -> None:
    require("systemd-analyze")
    done = analyze("verify", "--man=no", str(path))
    said = [line for line in done.stderr.splitlines() if path.name in line]
    assert [line for line in said if "Unit uses MemoryLimit=" not in line] == []


@pytest.mark.parametrize("path", LEGACY, ids=lambda path: path.name)
def test_a_legacy_unit_has_nothing_that_219_does_not_know_and_its_log_where_it_was(path: Path) -> None:
    found = sections(path)
    for name, keys in found.items():
        assert set(keys) <= KNOWN_TO_219[name] | {"Alias"}
    (command,) = found["Service"]["ExecStart"]
    (log,) = set(re.findall(r">>(/var/log/\S+\.log)\b", command))
    mode = path.parent.name.removeprefix("agent-")
    names = [f"waldur-site-agent-{mode}.log", f"{path.stem.removesuffix('-legacy')}.log"]
    assert Path(log).name in names
    rules = (REPOSITORY / "systemd" / "legacy" / "logrotate.conf").read_text()
    patterns = re.findall(r"^(/var/log/\S+)", rules, re.MULTILINE)
    assert any(Path(log).match(pattern) for pattern in patterns), "its log is rotated"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    running: list[UnitProcess] = []

    def make(name: str, config: Path | None, given: dict[str, str], **etc: Path) -> UnitProcess:
        places = {f"waldur-slurm-service/{file.replace('_', '.')}": path for file, path in etc.items()}
        unit = UnitProcess(
            f"../systemd-conf/{name}", tmp_path / f"unit-{len(running)}", config, given, etc=places
        )
        running.append(unit)
        return unit.start()

    yield make
    for unit in running:
        unit.close()


def reported(unit: UnitProcess) -> bool:
    """Whether a pass over usage has ended; no job ran."""
    return "so none is submitted" in unit.output()


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mount namespaces need root")


@needs_root
def test_yesterdays_units_run_without_a_broker(run: Run, tmp_path: Path) -> None:
    """Three of them, one in its legacy form; with an address of a broker that nobody answers at."""
    slurm = EmulatedSlurm(tmp_path)
    given = {**variables(slurm), "WALDUR_SITE_AGENT_BROKER_URL": "redis://127.0.0.1:1/0"}
    with SimulatedWaldur() as waldur:
        backends = {"membership_sync_backend": "slurm", "reporting_backend": "slurm"}
        config = site_file(waldur, tmp_path, backend=settings(slurm), **backends)
        order = waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 10}, slug="one")
        orders = run("agent-order-process/agent.service", config, given)
        orders.wait_for("READY=1")
        is_done = lambda: waldur.order(order).state.value == "done"  # noqa: E731
        wait_until("the order", is_done, orders.process, orders.log)
        report = run("agent-report/agent-legacy.service", config, given)
        members = run("agent-membership-sync/agent.service", config, given)
        for unit in (report, members):
            unit.wait_for("READY=1")
        wait_until("a report", lambda: reported(report), report.process)
        for unit in (orders, report, members):
            unit.terminate()
        assert [unit.wait_for_end() for unit in (orders, report, members)] == [0, 0, 0]
    log = report.folder / "logs" / "waldur-site-agent-report.log"
    assert "Running agent in report mode" in log.read_text()
    assert (report.log.read_text(), log.stat().st_mode & 0o777) == ("", 0o640)
    assert log.read_text().count("timezone is not written, so months of billing begin in UTC") == 1


@needs_root
def test_the_oldest_units_run_by_their_env_files(run: Run, tmp_path: Path) -> None:
    """As in the service's own documents: one file for each direction, with comments after the values."""
    slurm = EmulatedSlurm(tmp_path)
    with SimulatedWaldur() as waldur:
        site = {"WALDUR_API_URL": waldur.url, "WALDUR_API_TOKEN": waldur.token()}
        site |= {"WALDUR_OFFERING_UUID": waldur.seed.offering_uuid, "SLURM_DEFAULT_ACCOUNT": "root"}
        for direction in ("pull", "push"):
            lines = (
                (CONF / f"service-{direction}" / f"waldur-slurm-service-{direction}.env")
                .read_text()
                .splitlines()
            )
            pairs = (line.split("=", 1) for line in lines if line and line[0] != "#")
            written = {name: site.get(name, value) for name, value in pairs} | {
                "SLURM_DEPLOYMENT_TYPE": "native"
            }
            text = "".join(f"{name}={value} # as it is written there\n" for name, value in written.items())
            (tmp_path / f"{direction}.env").write_text(text)
        tres = tmp_path / "tres.yaml"
        shutil.copy(REPOSITORY / "config-components.yaml.example", tres)
        given = {
            **variables(slurm),
            "PATH": f"{settings(slurm)['slurm_bin_path']}:/opt/waldur-site-cluster/bin:/usr/bin:/bin",
        }
        order = waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 10}, slug="one")
        pull = run(
            "service-pull/waldur-slurm-service-pull.service",
            None,
            given,
            pull_env=tmp_path / "pull.env",
            tres_yaml=tres,
        )
        wait_until("the order", lambda: waldur.order(order).state.value == "done", pull.process, pull.log)
        push = run(
            "service-push/waldur-slurm-service-push.service",
            None,
            given,
            push_env=tmp_path / "push.env",
            tres_yaml=tres,
        )
        wait_until("a report", lambda: reported(push), push.process, push.log)
        push.wait_for("READY=1")
        assert "Running agent in report and membership_sync mode" in push.output()
        for unit in (pull, push):
            unit.terminate()
        assert [unit.wait_for_end() for unit in (pull, push)] == [0, 0]
    assert "hpc_one" in slurm.ask("sacctmgr", "-nP", "show", "account", "format=account")


def test_the_oldest_command_starts_what_took_its_place(tmp_path: Path) -> None:
    def ask(words: str, **given: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "waldur_slurm.main", *shlex.split(words)]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
            cwd=REPOSITORY,
            env={**os.environ, **given},
        )

    slurm = EmulatedSlurm(tmp_path)
    with SimulatedWaldur() as waldur:
        site = {
            "WALDUR_API_URL": waldur.url,
            "WALDUR_API_TOKEN": waldur.token(),
            "WALDUR_SYNC_DIRECTION": "pull",
        }
        site |= {"WALDUR_OFFERING_UUID": waldur.seed.offering_uuid, "SLURM_DEPLOYMENT_TYPE": "native"}
        site |= {
            "SLURM_TRES_CONFIG_PATH": str(REPOSITORY / "config-components.yaml.example"),
            **variables(slurm),
        }
        done = ask("--load-components", **site)
        assert done.returncode == 0, done.stderr
        assert "gres/gpu" in done.stdout and "created" in done.stdout
    wrong = ask("--load-component-s")
    assert (wrong.returncode, "usage: python3 -m waldur_slurm.main" in wrong.stderr) == (2, True)
    lacking = ask(
        "", WALDUR_SYNC_DIRECTION="both", **{n: v for n, v in site.items() if n != "WALDUR_SYNC_DIRECTION"}
    )
    assert (lacking.returncode, "use one of pull, push" in lacking.stderr) == (1, True)
