# SPDX-License-Identifier: MIT
"""Pages of the console: what passes saw of allocations and people, what happened, and what an operator does there."""

from __future__ import annotations

import re
from dataclasses import replace
from http import HTTPStatus

import pytest

from agent.cli import status_page
from agent.run.diagnosis import picture
from agent.state import overview, pauses
from agent.state.hints import SEEN_ALLOCATIONS, SEEN_PEOPLE, USAGES
from tests.agent.cli.conftest import Command
from tests.agent.cli.operator_site import OperatorSite
from tests.agent.cli.web.running import Running, xsrf


@pytest.fixture
def seen(console_beside_waldur: Running, site: OperatorSite, command: Command) -> Running:
    """The same after a pass over members."""
    config = site.configure(membership_sync_backend="slurm")
    assert command("run", "membership_sync", "--once", "-c", config).code == 0
    return console_beside_waldur


def test_an_allocation_and_a_person_as_a_pass_saw_them(seen: Running) -> None:
    console = seen
    viewer = console.log_in("vic")
    listed = viewer.get(f"{console.url}/allocations").text
    (offering,) = console.settings.offerings
    found = overview.find(console.settings.state_dir, SEEN_ALLOCATIONS, [offering.uuid])
    assert {each.value.name for each in found.rows} == {"one", "two"}
    for each in found.rows:
        assert f"/allocation/{offering.uuid}/{each.key}" in listed and each.value.account in listed
    (one,) = overview.find(console.settings.state_dir, SEEN_ALLOCATIONS, [offering.uuid], "ONE").rows
    page = viewer.get(f"{console.url}/allocation/{offering.uuid}/{one.key}").text
    assert "delete account a_one" in page, "the held plan about it"
    other = replace(one.value, account="a_on")
    SEEN_ALLOCATIONS.put(console.settings.state_dir, offering.uuid, {"0123456789abcdef" * 2: other})
    page_of_other = viewer.get(f"{console.url}/allocation/{offering.uuid}/{'0123456789abcdef' * 2}").text
    assert "delete account" not in page_of_other, "a plan about a longer name"
    assert "made account a_one" in page or "create account a_one" in page, "what happened to it"
    damaged = {"accounts": [{"account": one.value.account, "limits": {}}], "measures": [], "months": []}
    USAGES.put(console.settings.state_dir, offering.uuid, {"": damaged})
    page = viewer.get(f"{console.url}/allocation/{offering.uuid}/{one.key}")
    assert page.status_code == HTTPStatus.OK and "of another version has left is not understood" in page.text
    people = overview.find(console.settings.state_dir, SEEN_PEOPLE, [offering.uuid]).rows
    assert people
    assert f"/person/{offering.uuid}/{people[0].key}" in viewer.get(f"{console.url}/people").text
    page = viewer.get(f"{console.url}/person/{offering.uuid}/{people[0].key}").text
    assert people[0].value.username in page
    for path in ("/allocation/", "/person/"):
        assert (
            viewer.get(f"{console.url}{path}{offering.uuid}/{'0' * 32}").status_code == HTTPStatus.NOT_FOUND
        )


def test_a_pause_has_a_reason_an_end_and_a_name(console: Running, command: Command) -> None:
    (offering,) = console.settings.offerings
    path, state_dir = f"/offering/{offering.uuid}", console.settings.state_dir
    viewer, operator = console.log_in("vic"), console.log_in("ann")
    refused = console.send(viewer, path, act="pause", hours="4")
    assert refused.status_code == HTTPStatus.FORBIDDEN and pauses.pause_note(state_dir, offering) == ""
    for changed in ({"reason": " "}, {"hours": "5000"}, {"act": "delete"}):
        assert (
            console.send(operator, path, **{"act": "pause", **changed}).status_code == HTTPStatus.BAD_REQUEST
        )
    assert (
        console.send(operator, path, act="pause", hours="4", reason="new <b>fans</b>").status_code
        == HTTPStatus.OK
    )
    assert re.match(r"by ann \(console\) since \S+ until \S+ \(new", pauses.pause_note(state_dir, offering))
    assert "new &lt;b&gt;fans&lt;/b&gt;" in operator.get(f"{console.url}{path}").text
    late = console.send(operator, path, act="pause", shown="")
    assert late.status_code == HTTPStatus.CONFLICT and "is paused by ann (console)" in late.text
    assert console.send(operator, path, act="resume", reason="done").status_code == HTTPStatus.OK
    again = console.send(operator, path, act="resume", shown="by ann")
    assert again.status_code == HTTPStatus.CONFLICT and "is not paused any more" in again.text
    # Texts of other processes, and what they hold that a form does not send as it is.
    pauses.pause(state_dir, offering, by="root", reason="100 % of\nthe\tfans\u202e ")
    late = console.send(operator, path, act="resume", shown="by ann")
    assert late.status_code == HTTPStatus.CONFLICT and "(100 % of the fans\\u202e )" in late.text
    assert console.send(operator, path, act="resume").status_code == HTTPStatus.OK
    journal = command("audit", "-c", console.config).out
    assert "paused the offering until" in journal and "[operator ann (console)]" in journal
    assert "resumed the offering (done)" in journal
    page = viewer.get(f"{console.url}/audit?q=ann+RESUMED").text
    assert "resumed the offering (done)" in page and "paused the offering until" not in page
    for until in ("0001-01-01T00:00:00+23:00", "then"):
        page = viewer.get(f"{console.url}/audit", params={"until": until})
        assert page.status_code == HTTPStatus.OK


def test_a_plan_is_left_and_an_approval_revoked(console: Running) -> None:
    operator = console.log_in("ann")
    assert (
        console.send(operator, console.plan_path, act="leave", reason="ask the owner").status_code
        == HTTPStatus.OK
    )
    page = operator.get(console.plan_url).text
    assert "as it is (ask the owner)" in page and "operator ann (console)" in page
    assert "<bdi>a_one</bdi>: 5 actions" in page, "by account"
    assert console.approve(operator).status_code == HTTPStatus.OK
    left = console.send(operator, console.plan_path, act="leave")
    assert left.status_code == HTTPStatus.CONFLICT and "is approved by ann (console)" in left.text
    assert (
        console.send(operator, console.plan_path, act="revoke", reason="too early").status_code
        == HTTPStatus.OK
    )
    assert "revoked the approval" in operator.get(console.plan_url).text
    again = console.send(operator, console.plan_path, act="revoke")
    assert again.status_code == HTTPStatus.CONFLICT and "is not approved any more" in again.text


def test_an_approval_that_no_plan_wants_any_more_is_shown_and_revoked(console: Running) -> None:
    viewer, operator, plan = console.log_in("vic"), console.log_in("ann"), console.found.plan
    sentence = f"Plan {plan.short_id} is approved, and no pass plans it now"
    assert console.approve(operator).status_code == HTTPStatus.OK
    assert sentence not in operator.get(console.url).text
    console.found.held.drop(plan.id)
    page = viewer.get(console.url).text
    assert sentence in page and "approved by ann (console)" in page and "Revoke" not in page
    settings = console.settings
    file = status_page.render(picture.of_site(settings, settings.offerings), {})
    assert sentence in file and f"waldur-site-cluster approve {plan.short_id} --revoke" in file
    form = {"act": "revoke", "reason": "the course goes on", "_xsrf": xsrf(viewer.get(console.url))}
    assert viewer.post(console.plan_url, form).status_code == HTTPStatus.FORBIDDEN
    page = operator.get(console.url)
    assert sentence in page.text and f'action="{console.plan_path}"' in page.text
    form["_xsrf"] = xsrf(page)
    answer = operator.post(console.plan_url, form)
    assert answer.status_code == HTTPStatus.OK and sentence not in answer.text
    assert console.found.held.approvals.open() == []
    assert "revoked the approval" in viewer.get(f"{console.url}/audit").text
    again = operator.post(console.plan_url, form)
    assert again.status_code == HTTPStatus.CONFLICT and "is not approved any more" in again.text


def test_a_long_plan_is_searched_and_paged_and_approved_whole(console: Running) -> None:
    operator, plan = console.log_in("ann"), console.found.plan
    lines = {
        f'["RemoveMember", {{"account": "a_{n:04}", "user": "u{n:04}"}}]': f"remove u{n:04} from a_{n:04}"
        for n in range(5000)
    }
    console.found.held.hold(replace(plan, lines=lines))
    first = operator.get(console.plan_url).text
    assert "5000 actions" in first
    assert "from a_0049" in first and "from a_0050" not in first and len(first) < 10**6
    assert "from a_0050" in operator.get(f"{console.plan_url}?page=2").text
    for text in ("A_4999", "u4999"):
        found = operator.get(f"{console.plan_url}?q={text}").text
        assert "from a_4999" in found and "from a_0000" not in found
    assert console.approve(operator).status_code == HTTPStatus.OK
    (approval,) = console.found.held.approvals.open()
    assert len(approval.keys) == len(lines)


def test_an_order_is_tried_again_as_it_was_seen(console: Running, command: Command) -> None:
    viewer, operator = console.log_in("vic"), console.log_in("ann")
    page = operator.get(f"{console.url}/orders").text
    assert page.count("Try it again") == 2 and f'href="{console.plan_path}"' in page
    (offering,), (order, _) = console.settings.offerings, re.findall('name="order" value="(.*?)"', page)
    form = {"offering": offering.uuid, "order": order}
    assert console.send(viewer, "/orders", **form, shown="").status_code == HTTPStatus.FORBIDDEN
    assert console.send(operator, "/orders", **form, reason="").status_code == HTTPStatus.BAD_REQUEST
    changed = console.send(operator, "/orders", **form, shown="retry, Waldur was away")
    assert changed.status_code == HTTPStatus.CONFLICT
    assert "a pass has tried it meanwhile, and now it is: waiting, held as plan" in changed.text
    gone = console.send(operator, "/orders", **{**form, "order": "0" * 32})
    assert gone.status_code == HTTPStatus.CONFLICT and "does not wait any more" in gone.text
    away = console.send(operator, "/orders", **form)
    assert away.status_code == HTTPStatus.SERVICE_UNAVAILABLE and "does not answer" in away.text
    assert "another try" not in command("audit", "-c", console.config).out, "nothing was done"
    for act in ("order_process", "membership_sync"):
        started = console.send(viewer, f"/offering/{offering.uuid}", act=act)
        assert started.status_code == HTTPStatus.FORBIDDEN


def test_usage_is_what_a_worker_has_left(console: Running) -> None:
    viewer, (offering,) = console.log_in("vic"), console.settings.offerings
    page = f"{console.url}/usage/{offering.uuid}"
    assert viewer.get(page).status_code == HTTPStatus.NOT_FOUND, "it has no reporting_backend"
    assert "No offering" in viewer.get(f"{console.url}/usage").text
