# SPDX-License-Identifier: MIT
"""A view of usage that a worker leaves for the console: it comes back as it was, but for the shares of users."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from agent.cli.usage import sections
from agent.core.errors import WaldurError
from agent.run.usage import stored
from tests.agent.cli.usage.sheets import PRESENT, many, view


def test_it_comes_back_as_it_was() -> None:
    sheet = many(40, 5)
    accounts = tuple(replace(each, users={}) for each in sheet.accounts)
    before = view(replace(sheet, accounts=accounts), notes=("a note",), unanswered=(PRESENT,))
    after = stored.from_json(json.loads(json.dumps(stored.as_json(before))))
    assert stored.as_json(after) == stored.as_json(before)
    assert sections.offering(after).components == sections.offering(before).components
    away = stored.from_json(stored.as_json(view(sheet, waldur=WaldurError("away", method="GET", path="x"))))
    assert "away" in str(away.waldur)


def test_of_one_account() -> None:
    sheet = many(3, 2)
    document, account = stored.as_json(view(sheet)), sheet.accounts[1]
    months, found = stored.of_account(document, account.account)
    assert months == [str(month) for month in reversed(sheet.months)]
    for measure, each in zip(sheet.measures, found, strict=True):
        assert each.amounts == tuple(reversed(sheet.amounts(account.figures, measure)))
        assert each.limit == account.limits.get(measure.name)
    assert stored.of_account(document, "none") == ([], [])
    assert stored.of_account({"error": "the cluster is away"}, account.account) == ([], [])
    (row,) = (each for each in document["accounts"] if each["account"] == account.account)
    for name, value in (("amounts", []), ("limits", None), ("amounts", [["many"]] * 9)):
        damaged = {**document, "accounts": [{**row, name: value}]}
        for read in (stored.from_json, lambda found: stored.of_account(found, account.account)):
            with pytest.raises(stored.DAMAGED):
                read(damaged)
