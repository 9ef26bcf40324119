# SPDX-License-Identifier: MIT
"""Names that survive the way to MAM and back, names that are refused, and texts that are made to fit."""

from __future__ import annotations

import pytest

from agent.core.errors import PlanRefused
from agent.core.model import Part
from backends.base import Scope
from backends.moab.allowed_names import MAX_NAME_LENGTH, checked, free_text, is_usable
from backends.testing.contract import join, leave, new
from simulator.mam.install import StandIn
from tests.backends.conftest import on_stand_in

SURVIVE = [
    "a_demo", "a b", "o'neil", 'x"y', "käsk", "項目", "x.y@z-0_1", "1234", "a;b", "$(id)", "`id`", "a\\b", "#x",
]  # fmt: skip
REFUSED = {
    "": "it is empty",
    "  ": "it is empty",
    "a|b": "'|'",
    "a,b": "','",
    "a=b": "'='",
    "a*": "'*'",
    "a%": "'%'",
    "-a": "'-' at the beginning",
    "+a": "'+' at the beginning",
    "^a": "'^' at the beginning",
    "!a": "'!' at the beginning",
    "a\nb": "control character",
    "a\x7fb": "control character",
    "ANY": "word of MAM's own",
    "members": "word of MAM's own",
    "x" * (MAX_NAME_LENGTH + 1): "256 characters, 255 are possible",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_cannot_be_is_refused_with_a_sentence(name: str) -> None:
    assert not is_usable(name)
    with pytest.raises(PlanRefused, match="cannot be used in MOAB") as refused:
        checked("account", name)
    assert REFUSED[name] in str(refused.value)


def test_other_names_go_to_mam_and_come_back_as_they_are(mam: StandIn) -> None:
    assert all(checked("user", name) == name for name in SURVIVE)
    backend = on_stand_in(mam)
    outcomes = backend.apply([new(name, "root") for name in SURVIVE[1:4]])
    outcomes = [*outcomes, *backend.apply([join("a b", name) for name in SURVIVE])]
    assert [str(o.error) for o in outcomes if o.error] == []
    seen = backend.observe(Scope(frozenset({Part.ACCOUNTS})))
    assert set(seen.accounts) == set(SURVIVE[1:4])
    assert seen.users_of("a b") == set(SURVIVE)
    assert set(mam.books.accounts["a b"]["users"]) == set(SURVIVE)
    assert [o.error for o in backend.apply([leave("a b", name) for name in SURVIVE[2:]])] == [None] * 11
    assert set(mam.books.accounts["a b"]["users"]) == set(SURVIVE[:2])


def test_what_mam_spells_otherwise_is_found_and_changed_by_its_own_spelling(mam: StandIn) -> None:
    with mam.changed() as books:
        books.create_account("A_Demo", organization="P_Proj")
        books.create_fund("A_Demo")
        books.add_user("A_Demo", "Ann")
    backend = on_stand_in(mam)
    seen = backend.observe()
    assert (seen.accounts["a_demo"].parent, seen.users_of("a_demo")) == ("p_proj", {"ann"})
    assert seen.accounts["a_demo"].limits == {"deposit": 0}
    outcomes = backend.apply([join("a_demo", "ann"), join("a_demo", "bob")])
    outcomes = [*outcomes, *backend.apply([leave("a_demo", "ann")])]
    assert [o.error for o in outcomes] == [None] * 3
    assert mam.books.accounts["A_Demo"]["users"] == {"bob": True}


TEXTS = {
    "Plain text": "Plain text",
    ' "quoted"  and\nbroken ': "quoted and broken",
    "a|b": "a b",
    "-x --y": "x --y",
    "$(reboot); `id` & x > /etc/passwd": "reboot id x /etc/passwd",
    "O'Neil\u2028[1-3]*": "O Neil 1-3",
    "": "a_demo",
    "\t|": "a_demo",
    "Überschrift №1": "Überschrift №1",
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_for_people_is_one_line_and_no_option(text: str) -> None:
    assert free_text(text, "a_demo") == TEXTS[text]
