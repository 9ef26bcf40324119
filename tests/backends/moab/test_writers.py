# SPDX-License-Identifier: MIT
"""Agents on one host whose state_dirs differ: a deposit is made once."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from agent.core.actions import SetLimits
from agent.core.plans import Outcome
from backends.testing.contract import new
from simulator.mam.install import StandIn
from tests.backends.conftest import on_stand_in


def test_agents_with_different_state_dirs_deposit_once(mam: StandIn) -> None:
    on_stand_in(mam).apply([new("a_x", "root")])
    mam.faults({"needle": "mam-deposit", "times": 9, "sleep_s": 0.3})
    deposit = SetLimits(account="a_x", after=(("deposit", 250),))
    found: list[Sequence[Outcome]] = []
    writers = [
        threading.Thread(target=lambda name=name: found.append(on_stand_in(mam, state=name).apply([deposit])))
        for name in ("one", "two", "three")
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [outcome.error for outcomes in found for outcome in outcomes] == [None] * 3
    assert [words for words in mam.writes() if "mam-deposit" in words] == ["mam-deposit -a a_x -z 250 -f 17"]
    assert [fund["allocated"] for fund in mam.books.funds.values()] == [250_00]


def test_the_lock_is_that_of_the_programs_however_their_folder_is_written(mam: StandIn) -> None:
    link = mam.folder / "link"
    link.symlink_to(mam.bin)
    for written in (f"{mam.bin}", f"{mam.bin}/", f"{link}"):
        assert on_stand_in(mam, moab_bin_path=written).check().warnings == ()
    assert len(list((mam.folder / "host").iterdir())) == 1
    on_stand_in(mam, command_prefix=["env", "A=b"]).check()
    assert len(list((mam.folder / "host").iterdir())) == 2


def test_a_lock_that_cannot_be_shared_is_a_warning(mam: StandIn) -> None:
    (mam.folder / "host").touch()
    health = on_stand_in(mam).check()
    assert health.problems == ()
    assert [text.split(":")[0].split(" ")[-1] for text in health.warnings] == ["opened"]
