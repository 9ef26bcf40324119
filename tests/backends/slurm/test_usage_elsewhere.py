# SPDX-License-Identifier: MIT
"""The summaries of sreport, zones behind a prefix, a newer release (the emulator), and a hundred thousand lines."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.core.errors import BackendUnavailable, CommandFailed, ParseError
from agent.core.periods import Month
from agent.core.usage import AccountUsage, UsageQuery, UsageSource
from backends.base import UsageCheck
from backends.slurm.sreport import MonthOpen, ZoneDiffers
from backends.zones import ZoneMissing
from rig import sacct_reading
from tests.backends.conftest import Connect
from tests.backends.slurm.stand_in import HeadNode, Rule, account, join

MAY = UsageQuery(Month(2026, 5), "Europe/Tallinn")
NOON = 1777700000
ROWS = (
    "root||cpu|50",
    "a||cpu|40",
    "a|ann|cpu|30",
    "a|ann|mem|5000",
    "a|ann|energy|77",
    "a|ann|vmem|0",
    "A|Bob|cpu|4",
    "a|bob|cpu|6",
    "b||cpu|0",
    "b|bob|cpu|0",
)


# sreport --------------------------------------------------------------------------------------------


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HeadNode:
    """A head node whose own zone is that of Tallinn in summer, with an sreport."""
    node = HeadNode(tmp_path, programs=("sreport", "date"))
    monkeypatch.setenv("PATH", f"{node.bin}:{os.environ['PATH']}")
    answers(node)
    return node


def answers(node: HeadNode, *rows: str, offset: str = "+0300", **options: object) -> None:
    node.rules(
        Rule("date -d @", stdout=f"{offset}\n"),
        Rule("sreport", stdout="".join(f"{row}\n" for row in rows), **options),  # type: ignore[arg-type]
    )


def test_the_rows_of_users_are_summed_and_those_of_accounts_left_out(node: HeadNode) -> None:
    answers(node, *ROWS)
    backend = node.backend()
    assert isinstance(backend, UsageCheck)
    usage = backend.rolled_up(MAY)
    ann, bob = {"cpu": 30, "mem": 5000}, {"cpu": 10}
    assert usage.accounts == {
        "a": AccountUsage({"cpu": 40, "mem": 5000}, {"ann": ann, "bob": bob}),
        "b": AccountUsage({}, {"bob": {}}),
    }
    assert (usage.query.source, usage.records, usage.scale) == (UsageSource.ALLOCATED, 7, 60)
    assert node.calls() == [
        "date -d @1777582800 +%z",
        "date -d @1780261200 +%z",
        "sreport --noheader --parsable2 -t seconds --tres=all cluster AccountUtilizationByUser clusters=c1 "
        "start=2026-05-01 end=2026-06-01 format=Account,Login,TRESName,Used",
    ]


def test_no_rows_are_no_records(node: HeadNode) -> None:
    assert node.backend({"cluster_name": ""}).rolled_up(MAY).records == 0
    assert "clusters=" not in node.calls()[-1]
    answers(node, "root||cpu|0")
    assert node.backend().rolled_up(MAY).records == 0


@pytest.mark.parametrize(
    "row", ["", "words", "a|ann|cpu", "a|ann|cpu|1|2", "a|ann|cpu|1.5", "a|ann|cpu|-1", "a|b|c|"]
)
def test_a_foreign_row_makes_the_summary_unknown(node: HeadNode, row: str) -> None:
    answers(node, *ROWS, row)
    with pytest.raises(ParseError):
        node.backend().rolled_up(MAY)


def test_an_error_or_an_outage_after_rows_makes_the_summary_unknown(node: HeadNode) -> None:
    answers(node, *ROWS, code=1, stderr=" Unknown field 'bogus'\n")
    with pytest.raises(CommandFailed, match="Unknown field"):
        node.backend().rolled_up(MAY)
    answers(node, *ROWS, stderr="sreport: error: Problem talking to the database: Connection refused\n")
    with pytest.raises(BackendUnavailable):
        node.backend().rolled_up(MAY)


@pytest.mark.parametrize("offset", ["+0000", "-0300", ""])
def test_a_month_that_is_none_of_the_clusters_own_is_not_asked_for(node: HeadNode, offset: str) -> None:
    """It would be added up hour by hour, for minutes, under locks."""
    answers(node, *ROWS, offset=offset)
    with pytest.raises(ZoneDiffers, match="2026-05 in Europe/Tallinn is no month of the cluster's own zone"):
        node.backend().rolled_up(MAY)
    assert not [call for call in node.calls() if call.startswith("sreport")]


@pytest.mark.parametrize("which", [Month.of(datetime.now(UTC)), Month.of(datetime.now(UTC)).next])
def test_a_month_that_has_not_ended_is_not_asked_for(node: HeadNode, which: Month) -> None:
    with pytest.raises(MonthOpen):
        node.backend().rolled_up(UsageQuery(which))
    assert node.calls() == []


# Zones ----------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path) -> HeadNode:
    return HeadNode(tmp_path, programs=("sacct",))


WHOSE_ZONE = f"""#!{sys.executable} -SE
import os, sys
sys.stdout.write("a|" + os.environ["TZ"] + "|cpu=1|COMPLETED|1|00:00:00|{NOON}|{NOON}|1\\n")
"""


@pytest.mark.parametrize("zone", ["UTC", "Europe/Tallinn", "Asia/Tokyo"])
def test_sacct_reads_times_in_the_zone_of_the_query(here: HeadNode, zone: str) -> None:
    (here.bin / "sacct").write_text(WHOSE_ZONE)
    usage = here.backend().usage(UsageQuery(Month(2026, 5), zone))
    assert list(usage.accounts["a"].users) == [zone.lower()]


def test_behind_a_prefix_the_zone_goes_along(here: HeadNode) -> None:
    (here.bin / "sacct").write_text(WHOSE_ZONE)
    usage = here.backend({"command_prefix": ["env", "-u", "TZ"]}).usage(MAY)
    assert list(usage.accounts["a"].users) == ["europe/tallinn"]


@pytest.mark.parametrize("zone", ["Europe/Nowhere", "Europe", "", "EET-2"])
def test_a_zone_without_a_file_would_silently_be_utc_and_is_refused(here: HeadNode, zone: str) -> None:
    with pytest.raises(ZoneMissing, match="install the package tzdata, or set `timezone`") as error:
        here.backend().usage(UsageQuery(Month(2026, 5), zone))
    assert error.value.of_host
    assert here.calls() == []


def test_zones_are_looked_for_where_the_c_library_does(
    here: HeadNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZDIR", str(tmp_path))
    with pytest.raises(ZoneMissing):
        here.backend().usage(MAY)
    (tmp_path / "Europe").mkdir()
    (tmp_path / "Europe" / "Tallinn").touch()
    (here.bin / "sacct").write_text(WHOSE_ZONE.replace('"TZ"', '"TZDIR"'))
    assert list(here.backend().usage(MAY).accounts["a"].users) == [str(tmp_path).lower()]


# Zones behind a prefix ------------------------------------------------------------------------------

LINE = f"a|ann|cpu=1|COMPLETED|1|00:00:00|{NOON}|{NOON}|1\n"
WITHOUT_ZONES = """#!/bin/sh
# As in a container without tzdata: env TZ=... of a zone that has no file is UTC.
[ "$1" = env ] && case "$2" in TZ=*/*) shift 2; exec env TZ=UTC "$@";; esac
exec "$@"
"""


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], HeadNode]:
    """A head node behind this prefix."""

    def made(script: str) -> HeadNode:
        node = HeadNode(tmp_path, programs=("sacct",))
        node.answer("sacct", LINE)
        prefix = node.bin / "into"
        prefix.write_text(script)
        prefix.chmod(0o755)
        return node

    return made


def test_a_zone_that_is_unknown_behind_the_prefix_is_refused(container: Callable[[str], HeadNode]) -> None:
    node = container(WITHOUT_ZONES)
    backend = node.backend({"command_prefix": [str(node.bin / "into")]})
    with pytest.raises(
        ZoneMissing, match=r"'Europe/Tallinn' is taken as UTC\+0000, not \+0300: install"
    ) as error:
        backend.usage(MAY)
    assert error.value.of_host
    assert node.calls() == []
    assert backend.usage(UsageQuery(Month(2026, 5))).records == 1
    # In winter its months are those of UTC, and nothing is wrong.
    assert backend.usage(UsageQuery(Month(2026, 1), "Europe/London")).records == 1


def test_a_zone_that_is_known_behind_the_prefix_is_looked_for_once(
    container: Callable[[str], HeadNode],
) -> None:
    node = container('#!/bin/sh\nexec "$@"\n')
    backend = node.backend({"command_prefix": [str(node.bin / "into")]})
    for _ in range(2):
        assert backend.usage(MAY).records == 1
    assert backend.executed == {"read": 3}


def test_where_there_is_no_date_behind_the_prefix_it_is_said_and_the_answer_used(
    container: Callable[[str], HeadNode], caplog: pytest.LogCaptureFixture
) -> None:
    node = container('#!/bin/sh\n[ "$3" = date ] && exit 127\nexec "$@"\n')
    assert node.backend({"command_prefix": [str(node.bin / "into")]}).usage(MAY).records == 1
    assert "does not show whether Europe/Tallinn is known there" in caplog.text


# The emulator ---------------------------------------------------------------------------------------

INJECTED = "time_set 2026-05-10\nusage_inject ann 2 a1\ntime_set 2026-06-02\nusage_inject bob 1 a1\nquit\n"
NODE_HOUR = {"billing": 64, "cpu": 64, "gres/gpu": 4, "mem": 524_288, "node": 1}


@pytest.mark.parametrize("source", list(UsageSource))
def test_the_emulator_reports_what_was_used(on_emulator: Connect, source: UsageSource) -> None:
    backend = on_emulator()
    assert not [o for o in backend.apply([account("a1"), join("a1", "ann"), join("a1", "bob")]) if o.error]
    if not backend.usage(UsageQuery(Month(2026, 5))).records:
        program = Path(sys.executable).with_name("slurm-emulator")
        # Only a clock that does not go with the machine's can be set.
        apart = {
            name: value for name, value in os.environ.items() if name != "SLURM_EMULATOR_TIME_FOLLOW_WALL"
        }
        subprocess.run([program], input=INJECTED, text=True, capture_output=True, check=True, env=apart)
    may, june = (backend.usage(UsageQuery(Month(2026, m), "Europe/Tallinn", source)) for m in (5, 6))
    assert may.accounts["a1"].users == {"ann": {name: 7200 * count for name, count in NODE_HOUR.items()}}
    assert june.accounts["a1"].users == {"bob": {name: 3600 * count for name, count in NODE_HOUR.items()}}


# Many lines -----------------------------------------------------------------------------------------


def test_memory_stays_flat_however_many_jobs_there_were(tmp_path: Path) -> None:
    few, many = (sacct_reading.measure(tmp_path, count) for count in (10_000, 100_000))
    assert (few.records, many.records) == (10_000, 100_000)
    # 8 MB of lines.
    assert many.peak_kib - few.peak_kib < 4096
