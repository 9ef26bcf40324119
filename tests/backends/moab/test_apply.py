# SPDX-License-Identifier: MIT
"""What is run for each action, and what a failure means: the lists decide, and after an outage nothing is tried."""

from __future__ import annotations

import shlex
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.core.actions import (
    AllowSubmission,
    BlockSubmission,
    ClusterAction,
    CreateAccount,
    DeleteAccount,
    MoveDefaultAccount,
    SetLimits,
    SetUserLimits,
)
from agent.core.errors import (
    BackendError,
    BackendUnavailable,
    CommandDenied,
    CommandFailed,
    NotApplied,
    NotEmpty,
    ParseError,
)
from agent.core.plans import Outcome
from backends.moab.commands import NotInMoab
from backends.moab.programs import failure
from backends.process import CommandMissing, Completed
from backends.testing.contract import join, leave, new
from rig.mam import quick_stand_in
from simulator.mam.install import StandIn
from tests.backends.conftest import on_stand_in


def limit(name: str, amount: int = 100) -> SetLimits:
    return SetLimits(account=name, after=(("deposit", amount),))


def gone(name: str, parent: str = "root") -> DeleteAccount:
    return DeleteAccount(account=name, parent=parent)


def applied(mam: StandIn, *actions: ClusterAction, **settings: Any) -> dict[str, str]:
    """Kinds of errors by action, of those that failed; one outcome for each action in any case."""
    outcomes = on_stand_in(mam, **settings).apply(actions)
    assert [o.action for o in sorted(outcomes, key=lambda o: actions.index(o.action))] == list(actions)
    return {o.action.render(): type(o.error).__name__ for o in outcomes if o.error}


def test_each_action_has_its_commands_and_each_name_is_one_word(mam: StandIn) -> None:
    project = new("p_x", "root")
    outcomes = on_stand_in(mam).apply(
        [
            join("a_x", "o'neil"), limit("a_x", 5), new("a_x", "p_x"), project,
            BlockSubmission(account="a_x"), AllowSubmission(account="p_x"),
            MoveDefaultAccount(account="a_x", user="o'neil", before="p_x"),
        ]
    )  # fmt: skip
    assert [o.error for o in outcomes if o.error] == []
    assert [words for _, what, _, words in mam.log() if what == "begin" and "--show" not in words] == [
        ["-a", "p_x", "-d", "d", "-o", "p_x"],
        ["-a", "a_x", "-d", "d", "-o", "p_x"],
        ["-a", "p_x"],
        ["-a", "a_x"],
        ["-a", "a_x", "-z", "5", "-f", "18"],
        ["--add-user", "+o'neil", "-a", "a_x"],
        ["-u", "o'neil", "-a", "a_x"],
        ["-A", "-a", "p_x"],
        ["-I", "-a", "a_x"],
    ]
    by_action = {o.action: o for o in outcomes}
    assert [line.rpartition("/")[2] for line in by_action[project].commands] == [
        "mam-create-account -a p_x -d d -o p_x", "mam-create-fund -a p_x",
    ]  # fmt: skip
    assert by_action[project].duration_s > 0


def test_the_commands_printed_do_what_apply_does(
    mam: StandIn, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Run by a shell, on a MAM with a fund that everybody can use."""
    other = quick_stand_in(tmp_path_factory.mktemp("other"))
    for each in (mam, other):
        with each.changed() as books:
            books.create_fund()
            books.create_account("a_old", organization="p_x")
            books.create_fund("a_old")
            books.deposit("18", 30_00)
            books.add_user("a_old", "ann")
    actions: list[ClusterAction] = [
        new("p_x", "root"), new('a "x"', "p_x"), limit('a "x"', 5), limit("a_old", 20), join("a_old", "ann"),
        join("a_old", "bob"), leave("a_old", "ann"), BlockSubmission(account="a_old"), leave("a_old", "nobody"),
    ]  # fmt: skip
    lines = on_stand_in(other).commands(actions)
    for line in lines:
        subprocess.run(["/bin/sh", "-ec", line], check=True, capture_output=True, timeout=600)
    assert applied(mam, *actions) == {}
    assert mam.books.__dict__ == other.books.__dict__
    assert len(lines) == len(mam.writes()) == 9
    assert [shlex.split(line)[0].rpartition("/")[2] for line in on_stand_in(mam).commands([gone("a_old")])] == [
        "mam-delete-fund", "mam-delete-account",
    ]  # fmt: skip


def test_a_fund_that_mam_makes_by_itself_is_not_made_twice(mam: StandIn) -> None:
    with mam.changed() as books:
        books.options["fund_with_account"] = True
    assert applied(mam, new("a_x", "root"), limit("a_x")) == {}
    assert [fund["balance"] for fund in mam.books.funds.values()] == [100_00]


def test_an_account_whose_fund_is_missing_gets_it_with_its_deposit(mam: StandIn) -> None:
    with mam.changed() as books:
        books.create_account("a_x")
    assert applied(mam, limit("a_x")) == {}
    assert mam.writes() == ["mam-create-fund -a a_x", "mam-deposit -a a_x -z 100 -f 17"]


def test_funds_of_a_deleted_account_of_the_same_name_go_to_no_new_one(mam: StandIn) -> None:
    with mam.changed() as books:
        books.create_account("a_x")
        books.create_fund("a_x")
        books.deposit("17", 9_00)
        books.delete_account("a_x")
        books.create_account("a_other")
    (outcome, limits) = on_stand_in(mam).apply([new("a_x", "root"), limit("a_x")])
    assert "funds of an account of this name that is gone: 17 (9.00 left of 9.00)" in str(outcome.error)
    assert limits.error is outcome.error
    assert mam.writes() == []
    assert on_stand_in(mam).check().warnings == (
        "fund 17 is of account a_x, which is not there, and holds 9.00",
    )
    with mam.changed() as books:
        books.withdraw("17", 9_00)
    assert applied(mam, new("a_x", "root"), limit("a_x")) == {}
    assert {n: fund["balance"] for n, fund in mam.books.funds.items()} == {"17": 100_00}


def test_an_account_goes_after_its_funds_and_never_with_people_in_it(mam: StandIn) -> None:
    assert applied(mam, new("p_x", "root"), new("a_x", "p_x"), new("a_y", "p_x"), join("a_x", "ann")) == {}
    before = mam.books.__dict__
    outcomes = on_stand_in(mam).apply([gone("a_x", "p_x"), gone("p_x")])
    assert [type(o.error) for o in outcomes] == [NotEmpty, NotEmpty]
    assert "ann would lose access" in str(outcomes[0].error)
    assert mam.books.__dict__ == before
    mam.watch()
    assert applied(mam, gone("p_x"), gone("a_y", "p_x"), gone("a_x", "p_x"), leave("a_x", "ann")) == {}
    assert [line.split(" ", 1)[0] for line in mam.writes()] == [
        "mam-modify-account", *(["mam-delete-fund", "mam-delete-account"] * 3),
    ]  # fmt: skip
    assert mam.writes()[-1] == "mam-delete-account -a p_x"
    assert (mam.books.accounts, mam.books.funds) == ({}, {})


def test_what_mam_has_nothing_for_is_reported_and_blames_no_account(mam: StandIn) -> None:
    backend = on_stand_in(mam)
    action = SetUserLimits(account="a_x", user="ann", after=(("deposit", 5),))
    (outcome,) = backend.apply([action])
    assert isinstance(outcome.error, NotInMoab) and outcome.error.of_host
    assert "no command to set limits of user" in str(outcome.error)
    assert backend.commands([action]) == []
    assert mam.calls() == []


def failing(needle: str, **rule: Any) -> dict[str, Any]:
    return {"needle": needle, "code": 1, "stderr": "something is wrong\n", **rule}


def test_a_refusal_harms_nothing_else_and_says_what_mam_said(mam: StandIn) -> None:
    mam.faults(failing("--add-user +bad"))
    outcomes = on_stand_in(mam).apply([new("a_x", "root"), join("a_x", "bad"), join("a_x", "good")])
    errors = [o.error for o in outcomes if o.error]
    assert [type(error) for error in errors] == [CommandFailed]
    assert "ended with 1: something is wrong" in str(errors[0])
    assert mam.books.accounts["a_x"]["users"] == {"good": True}


def test_users_that_mam_does_not_know_are_refused_one_by_one(mam: StandIn) -> None:
    with mam.changed() as books:
        books.options["makes_users"] = False
        books.users["ann"] = ""
    found = applied(mam, new("a_x", "root"), join("a_x", "ann"), join("a_x", "who"))
    assert found == {"add member who to a_x": "CommandFailed"}


def test_a_command_that_fails_after_it_was_done_is_done(mam: StandIn) -> None:
    """Every one of them, in both directions: what the lists show counts."""
    mam.faults(
        *(failing(word, when="after") for word in ("create", "deposit", "modify", "withdraw", "delete"))
    )
    actions = [new("a_x", "root"), limit("a_x"), join("a_x", "ann"), BlockSubmission(account="a_x")]
    assert applied(mam, *actions) == {}
    (fund,) = mam.books.funds.values()
    assert fund["allocated"] == 100_00
    assert mam.books.accounts["a_x"] == {
        "description": "d", "organization": "a_x", "active": False, "users": {"ann": True},
    }  # fmt: skip
    assert applied(mam, limit("a_x", 40)) == {}
    assert mam.books.funds["17"]["balance"] == 40_00
    assert applied(mam, leave("a_x", "ann"), gone("a_x")) == {}
    assert (mam.books.accounts, mam.books.funds) == ({}, {})


def test_where_the_lists_fail_too_it_is_an_outage_and_nothing_more_is_tried(mam: StandIn) -> None:
    backend = on_stand_in(mam)
    assert backend.apply([new("a_x", "root"), new("a_y", "root")])[0].done
    mam.watch()
    mam.faults(failing("deposit -a a_x"), failing("mam-list", skip=2))
    outcomes = backend.apply([limit("a_x"), limit("a_y"), join("a_x", "ann"), gone("a_y")])
    assert [type(o.error) for o in outcomes] == [BackendUnavailable] * 4
    assert "what it has done cannot be seen" in str(outcomes[0].error)
    assert [str(o.error) for o in outcomes[1:]] == ["not tried: the accounting database does not answer"] * 3
    assert mam.writes() == ["mam-deposit -a a_x -z 100 -f 17"]


BROKEN_READS: list[tuple[dict[str, Any], type[BackendError]]] = [
    ({"needle": "mam-list-accounts", "code": 1, "stderr": "no server\n"}, BackendUnavailable),
    ({"needle": "mam-list-funds", "code": 3, "stdout": "a|b\n"}, BackendUnavailable),
    ({"needle": "mam-list-funds", "code": 1, "stderr": "You are not authorized\n"}, CommandDenied),
    ({"needle": "mam-list-accounts", "kill": "self"}, BackendUnavailable),
    ({"needle": "mam-list-accounts", "code": 0, "stdout": ""}, ParseError),
    ({"needle": "mam-list-accounts", "code": 0, "stdout": "a_x|True|"}, ParseError),
    ({"needle": "mam-list-funds", "code": 0, "stdout": "17|x|y|Account=a_x\n"}, ParseError),
    ({"needle": "mam-list", "code": 0, "stdout": ""}, ParseError),
]


@pytest.mark.parametrize(("rule", "error"), BROKEN_READS)
def test_what_cannot_be_read_is_not_absent_and_nothing_is_tried(
    mam: StandIn, rule: dict[str, Any], error: type[BackendError]
) -> None:
    backend = on_stand_in(mam)
    with mam.changed() as books:
        books.create_account("a_x")
        books.create_fund("a_x")
    mam.faults(rule)
    for ask in (backend.observe, lambda: backend.apply([new("a_y", "root"), gone("a_x")])):
        with pytest.raises(error):
            ask()
    assert mam.writes() == []


def test_programs_that_are_not_there_are_the_hosts_fault(mam: StandIn) -> None:
    with pytest.raises(CommandMissing, match="Check moab_bin_path or command_prefix") as missing:
        on_stand_in(mam, moab_bin_path="/nonexistent").observe()
    assert missing.value.of_host
    (mam.bin / "mam-create-fund").unlink()
    (outcome,) = on_stand_in(mam).apply([new("a_x", "root")])
    assert isinstance(outcome.error, CommandMissing)


def test_an_account_that_has_gone_since_the_read_is_no_failure_of_others(mam: StandIn) -> None:
    actions = [limit("a_x"), join("a_x", "ann"), BlockSubmission(account="a_x")]
    assert set(applied(mam, *actions).values()) == {NotApplied.__name__}
    assert mam.writes() == []


def test_writers_take_turns_and_one_deposit_is_enough(mam: StandIn) -> None:
    """Three at once want the same account with the same deposit."""
    actions = [new("a_x", "root"), limit("a_x"), join("a_x", "ann")]
    found: list[Sequence[Outcome]] = []
    workers = [
        threading.Thread(target=lambda: found.append(on_stand_in(mam).apply(actions))) for _ in range(3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [o.error for outcomes in found for o in outcomes] == [None] * 9
    assert len(mam.writes()) == 4
    assert [fund["allocated"] for fund in mam.books.funds.values()] == [100_00]
    writing = 0
    for _, what, name, _ in mam.log():
        if not name.startswith("mam-list"):
            writing += 1 if what == "begin" else -1
            assert writing <= 1


def test_everything_goes_through_the_prefix(mam: StandIn) -> None:
    assert applied(mam, new("a_x", "root"), limit("a_x"), command_prefix="env SOMETHING=else") == {}
    assert len(mam.writes()) == 3
    backend = on_stand_in(mam, command_prefix=["env", "A=b"])
    assert backend.commands([join("a_x", "ann")]) == [
        f"env A=b {mam.bin}/mam-modify-account --add-user +ann -a a_x"
    ]


def test_behind_ssh_a_name_is_a_name_and_never_a_command(mam: StandIn, tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nshift\nexec /bin/sh -c "$*"\n', encoding="utf-8")
    ssh.chmod(0o755)
    lab, made = f"Lab;touch${{IFS}}{tmp_path}/made;true 'x", tmp_path / "made"
    actions = [
        CreateAccount(account="a b", parent="root", description=lab),
        limit("a b"),
        join("a b", "o'neil $(id)"),
    ]
    assert applied(mam, *actions, command_prefix=[str(ssh), "mam-server"]) == {}
    assert not made.exists()
    assert mam.books.accounts["a b"]["description"] == f"Lab touch IFS {tmp_path}/made true x"
    assert [
        words for _, what, name, words in mam.log() if (what, name) == ("begin", "mam-modify-account")
    ] == [["--add-user", "+o'neil $(id)", "-a", "a b"]]


@pytest.mark.parametrize("name", ["a_permissions", "permission", "unauthorized-x", "authenticated"])
def test_a_name_that_speaks_of_rights_is_no_lack_of_them(name: str) -> None:
    said = f"Account {name} has no fund"
    argv = ("mam-modify-account", "--add-user", f"+{name}", "-a", name)
    for stdout, stderr in ((said, ""), ("", said)):
        assert type(failure(Completed(argv, 74, stdout, stderr, 0.1))) is CommandFailed
        behind_ssh = Completed(("ssh", "h", " ".join(argv)), 74, stdout, stderr, 0.1, words=argv)
        assert type(failure(behind_ssh)) is CommandFailed
    lacking = failure(Completed(argv, 74, "", f"You are not authorized to modify account {name}", 0.1))
    assert type(lacking) is CommandDenied


def test_a_text_of_any_length_is_cut_and_what_is_too_long_fails_no_other_action(mam: StandIn) -> None:
    named = CreateAccount(
        account="long", parent="root", description="a long name " * 15_000, organization="o"
    )
    long = CreateAccount(account="x" * 140_000, parent="root", description="d", organization="o")
    member = join("long", "y" * 140_000)
    assert applied(mam, new("first", "root"), named, long, member, new("last", "root")) == {
        long.render(): "PlanRefused",
        member.render(): "PlanRefused",
    }


def test_a_command_that_is_too_long_fails_alone(mam: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a name that gets through: the texts are not cut here."""
    monkeypatch.setattr("backends.free_text.BYTES_AT_MOST", 10**6)
    named = CreateAccount(
        account="long", parent="root", description="a long name " * 15_000, organization="o"
    )
    assert applied(mam, new("first", "root"), named, new("last", "root")) == {
        named.render(): "CommandTooLong"
    }
