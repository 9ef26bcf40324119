# SPDX-License-Identifier: MIT
"""The stand-ins are strict: what the real programs would not understand, they refuse, and change nothing."""

from __future__ import annotations

import subprocess

import pytest

from simulator.mam.install import StandIn
from simulator.mam.programs import PROGRAMS

WRONG = {
    "mam-list-accounts --raw --quiet": "Option --show is missing",
    "mam-list-accounts --quiet --show Name": "Option --raw is missing",
    "mam-list-accounts --raw --quiet --show Name,Shoes": "Unknown attribute: Shoes",
    "mam-list-accounts --raw --quiet --show Name --all": "Unknown option: --all",
    "mam-list-funds --raw --raw --quiet --show Id": "Option --raw is given twice",
    "mam-list-usagerecords --raw --quiet --show Charge -s 2026-05-01T00:00:00": "Option -e is missing",
    "mam-list-usagerecords --show Charge -s May -e June": "'May' is no time",
    "mam-create-account -d x": "Option -a is missing",
    "mam-create-account -a": "Option -a requires an argument",
    "mam-create-account a_x": "Unknown option: a_x",
    "mam-create-account -a a_demo": "Account a_demo already exists",
    "mam-create-fund -a a_none": "Account a_none does not exist",
    "mam-modify-account -a a_demo": "Exactly one change is expected here",
    "mam-modify-account -a a_demo -A -I": "Exactly one change is expected here",
    "mam-modify-account --add-user +ann -a a_demo": "User ann is already a member of account a_demo",
    "mam-modify-account --del-user bob -a a_demo": "User bob is not a member of account a_demo",
    "mam-deposit -a a_demo -z -5 -f 17": "'-5' is no amount",
    "mam-deposit -a a_demo -z 1e3 -f 17": "'1e3' is no amount",
    "mam-deposit -a a_demo -z 1.005 -f 17": "'1.005' is no amount",
    "mam-deposit -a a_demo -z 0 -f 17": "The amount of a deposit must be above zero",
    "mam-deposit -a a_demo -z 5 -f 99": "Fund 99 does not exist",
    "mam-deposit -a a_demo -z 5": "Option -f is missing",
    "mam-withdraw -z 5 -f 17": "Insufficient funds: fund 17 holds 1.00",
    "mam-delete-fund -f 99": "Fund 99 does not exist",
    "mam-delete-account -a a_none": "Account a_none does not exist",
    "mam-modify-user -u nobody -a a_demo": "User nobody does not exist",
}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    mam = StandIn(tmp_path_factory.mktemp("demo"))
    with mam.changed() as books:
        books.create_account("a_demo")
        books.create_fund("a_demo")
        books.deposit("17", 1_00)
        books.add_user("a_demo", "ann")
    return mam


@pytest.mark.parametrize("line", WRONG)
def test_what_is_wrong_ends_with_1_and_changes_nothing(demo: StandIn, line: str) -> None:
    program, *words = line.split()
    before = (demo.folder / "mam.json").read_text()
    done = subprocess.run([demo.bin / program, *words], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{program}: {WRONG[line]}\n")
    assert (demo.folder / "mam.json").read_text() == before


def test_every_program_is_there_and_prints_its_version(demo: StandIn) -> None:
    assert sorted(path.name for path in demo.bin.iterdir()) == sorted(PROGRAMS)
    done = subprocess.run(
        [demo.bin / "mam-deposit", "--version"], capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stdout) == (0, "mam-deposit version 9.1.1\n")
