# SPDX-License-Identifier: MIT
"""One month of history: what is reported, for whom, what is left alone, and what is printed."""

from __future__ import annotations

import pytest

from agent.run.backfill.results import Ending, Mark
from agent.state import report_state
from simulator.server.faults import Fault, FaultKind, throttled
from tests.agent.run.backfill.conftest import HistoryFactory
from tests.agent.run.backfill.world import FEB, JAN, History, texts

GB_HOUR = 1024 * 3600
TOTALS = "marketplace-component-usages/set_usage/"
BULK = "set_user_usages"


def members(history: History) -> list[str]:
    """Names on the cluster of people who have an offering user."""
    return [row.username for row in history.waldur.store.offering_users]


def test_a_month_is_reported_once_and_linked_to_people(history: History) -> None:
    person = members(history)[0]
    history.ran("a_1", person, 10, month=JAN, mem=7)
    history.ran("a_1", "stranger", 2.5, month=JAN)
    history.ran("a_2", person, 1, month=JAN)
    outcome = history.loaded()
    assert outcome.ending is Ending.DONE
    assert history.in_waldur(JAN) == {"a_1": {"cpu": "12.50"}, "a_2": {"cpu": "1.00"}}
    assert history.shares("a_1", month=JAN) == {person: "10.00", "stranger": "2.50"}
    assert history.linked(person) is not None
    assert history.linked("stranger") is None
    assert texts(outcome) == [
        "Found 4 active resources to process",
        "Processing usage data for 2 accounts",
        "without an offering user in Waldur, submitted by name only: stranger",
        "Submitted usage for resource a_1: {'cpu': 12.50}",
        "Submitted usage for resource a_2: {'cpu': 1.00}",
        f"Submitted usage of users for resource a_1, cpu: {{'{person}': 10.00, 'stranger': 2.50}}",
        f"Submitted usage of users for resource a_2, cpu: {{'{person}': 1.00}}",
        "Completed processing 2024-01 (4 resources)",
    ]


def test_one_reading_of_the_cluster_s_usage_for_all_accounts(history: History) -> None:
    history.busy(JAN)
    outcome = history.load()
    assert [str(query.month) for query in history.backend.queries] == ["2024-01"]
    assert outcome.commands == 2, "usage, and the accounts"


def test_a_second_load_reports_nothing_and_says_so(history: History) -> None:
    history.busy(JAN)
    history.load()
    history.waldur.requests.reset()
    again = history.load()
    assert history.sent() == []
    assert texts(again)[-2:] == [
        "Waldur has all usage of 2024-01 already",
        "Completed processing 2024-01 (4 resources)",
    ]


def test_accounts_without_usage_are_left_as_they_are(history: History) -> None:
    first = history.ran("a_1", "u", 3, month=JAN)
    history.ran("a_2", "u", 4, month=JAN)
    history.load()
    history.forget(first)
    history.loaded()
    assert history.in_waldur(JAN) == {"a_1": {"cpu": "3.00"}, "a_2": {"cpu": "4.00"}}
    assert history.shares("a_1", month=JAN) == {"u": "3.00"}


def test_components_and_users_without_usage_are_left_as_they_are(history: History) -> None:
    history.ran("a_1", "u", 3, month=JAN)
    job = history.ran("a_1", "v", 2, month=JAN, mem=4 * GB_HOUR)
    history.load()
    history.forget(job)
    outcome = history.loaded(allow_decreases=True)
    assert history.in_waldur(JAN)["a_1"] == {"cpu": "3.00", "mem": "4.00"}
    assert history.shares("a_1", month=JAN) == {"u": "3.00", "v": "2.00"}
    assert texts(outcome, Mark.WARNING) == ["a_1 in 2024-01: cpu lowered from 5.00 to 3.00"]


def test_stale_records_are_reconciled_on_request(history: History) -> None:
    first = history.ran("a_1", "u", 3, month=JAN)
    history.ran("a_2", "u", 4, month=JAN)
    gone = history.ran("a_2", "v", 2, month=JAN)
    history.load()
    history.forget(first)
    history.forget(gone)
    outcome = history.loaded(reconcile_stale=True)
    assert history.in_waldur(JAN) == {"a_1": {"cpu": "0.00"}, "a_2": {"cpu": "4.00"}}
    assert history.shares("a_1", month=JAN) == {"u": "0.00"}
    assert history.shares("a_2", month=JAN) == {"u": "4.00", "v": "0.00"}
    assert texts(outcome, Mark.WARNING) == [
        "a_1 in 2024-01: cpu lowered from 3.00 to 0.00",
        "a_2 in 2024-01: cpu lowered from 6.00 to 4.00",
        "a_1 in 2024-01: cpu of u lowered from 3.00 to 0.00",
        "a_2 in 2024-01: cpu of v lowered from 2.00 to 0.00",
    ]
    assert outcome.lowered == 4


def test_an_account_that_the_cluster_dropped_is_reconciled_too(history: History) -> None:
    job = history.ran("a_1", "u", 3, month=JAN)
    history.ran("a_2", "u", 4, month=JAN)
    history.load()
    history.forget(job)
    history.drop("a_1")
    history.loaded(reconcile_stale=True)
    assert history.in_waldur(JAN)["a_1"] == {"cpu": "0.00"}


@pytest.mark.parametrize("foreign", [False, True], ids=["no answer at all", "another cluster's answer"])
def test_an_answer_without_our_accounts_zeroes_nothing(history: History, foreign: bool) -> None:
    history.busy(JAN)
    history.load()
    history.backend.jobs.clear()
    if foreign:
        history.ran("theirs", "u", 1, month=JAN)
        for account in history.accounts:
            history.drop(account)
    history.waldur.requests.reset()
    outcome = history.load(reconcile_stale=True)
    assert history.sent() == []
    assert outcome.ending is Ending.UNKNOWN
    (sentence,) = texts(outcome, Mark.INFO)
    assert sentence.startswith("No usage data found for 2024-01: ")
    assert sentence.endswith("by hand: `count a_1 2024-01`")


def test_amounts_have_two_decimals(history: History) -> None:
    history.ran("a_1", "u", 1 / 3, month=JAN)
    history.loaded()
    assert history.in_waldur(JAN)["a_1"] == {"cpu": "0.33"}


def test_totals_only(history: History) -> None:
    history.busy(JAN)
    history.waldur.requests.reset()
    history.load(with_users=False)
    assert history.shares("a_1", month=JAN) == {}
    assert history.waldur.requests.count("GET marketplace-offering-users/") == 0


def test_only_the_resources_that_were_asked_for(history: History) -> None:
    history.busy(JAN)
    outcome = history.loaded(accounts=("A_2", "nobody"))
    assert history.in_waldur(JAN) == {"a_2": {"cpu": "2.00"}}
    assert texts(outcome, Mark.WARNING) == [
        "no resource of the offering has the backend id nobody: it is passed over"
    ]
    assert "Found 1 active resources to process" in texts(outcome)


@pytest.mark.parametrize("dry_run", [False, True])
def test_no_active_resources(history: History, dry_run: bool) -> None:
    history.busy(JAN)
    history.waldur.requests.reset()
    outcome = history.load(accounts=("nobody",), dry_run=dry_run)
    assert outcome.ending is Ending.DONE
    assert texts(outcome, Mark.INFO) == [
        "No active resources found for offering, skipping month: none of its resources among those that were asked "
        "for is OK in Waldur and has a backend_id"
    ]
    assert (history.sent(), history.backend.queries) == ([], [])


def test_no_usage(history: History) -> None:
    history.busy(JAN)
    outcome = history.load(FEB)
    assert outcome.ending is Ending.UNKNOWN
    assert texts(outcome, Mark.INFO) == [
        "No usage data found for 2024-02: the cluster names no job at all in that month; backend ids have to be names "
        "of accounts; by hand: `count a_1 2024-02`"
    ]


def test_a_month_of_other_accounts_is_known(history: History) -> None:
    history.ran("theirs", "u", 1, month=JAN)
    outcome = history.load()
    assert outcome.ending is Ending.DONE
    assert texts(outcome)[-1].startswith(
        "No usage data found for 2024-01: the cluster names no job of these accounts in that month"
    )


@pytest.mark.parametrize("state", ["Updating", "Terminating"])
def test_resources_on_their_way_are_reported(history: History, state: str) -> None:
    history.waldur.site.change("resources", history.resource("a_1"), state=state)
    history.busy(JAN)
    history.load()
    assert history.in_waldur(JAN)["a_1"] == {"cpu": "1.00"}


def test_erred_resources_are_named_and_stop_no_other(history: History) -> None:
    for account in ("a_1", "a_4"):
        history.waldur.site.change("resources", history.resource(account), state="Erred")
    for account in ("a_1", "a_2", "a_3"):
        history.ran(account, "u", 1, month=JAN)
    outcome = history.load()
    assert (outcome.ending, outcome.skipped) == (Ending.DONE, 1)
    assert set(history.in_waldur(JAN)) == {"a_2", "a_3"}
    assert texts(outcome, Mark.WARNING) == [
        "a_1: Waldur takes no usage of a resource that is Erred; set it OK and load the month again"
    ]


def test_an_account_that_two_resources_claim_is_a_failure(history: History) -> None:
    history.busy(JAN)
    history.waldur.site.change("resources", history.resource("a_2"), backend_id="a_1")
    outcome = history.load()
    assert outcome.ending is Ending.FAILED
    assert set(history.in_waldur(JAN)) == {"a_3", "a_4"}
    assert len(outcome.failures) == 2
    assert all("is named by several resources" in sentence for sentence in outcome.failures)


def test_one_refused_resource_stops_no_other(history: History) -> None:
    history.busy(JAN)
    history.waldur.inject(Fault(path=TOTALS, method="POST", status=400, body="no plan", skip=1))
    outcome = history.load()
    assert outcome.ending is Ending.FAILED
    (failure,) = outcome.failures
    assert failure.startswith("a_") and "Waldur answered 400" in failure
    assert len(history.in_waldur(JAN)) == 3
    assert texts(outcome, Mark.DONE) == ["Completed processing 2024-01 (4 resources), 1 failed"]
    assert history.loaded().submitted == 1


@pytest.mark.parametrize("age", ["8.0", "8.1"])
def test_a_user_s_refused_share_blocks_neither_the_total_nor_other_users(
    make_history: HistoryFactory, age: str
) -> None:
    history = make_history(age)
    person, other = members(history)[:2]
    username = history.waldur.store.users[
        next(r.user_uuid for r in history.waldur.store.offering_users if r.username == person)
    ].username
    history.waldur.site.add_user_limit(history.resource("a_1"), username, component_type="cpu", limit=1)
    history.ran("a_1", person, 5, month=JAN)
    history.ran("a_1", other, 6, month=JAN)
    outcome = history.load()
    assert history.in_waldur(JAN)["a_1"] == {"cpu": "11.00"}
    assert history.shares("a_1", month=JAN) == {other: "6.00"}
    (failure,) = outcome.failures
    assert failure.startswith(f"a_1: cpu of {person}: ")


def test_throttling_and_errors_of_the_server_are_waited_out(history: History) -> None:
    history.busy(JAN)
    history.waldur.inject(throttled(retry_after_s=0, path=TOTALS, times=2))
    history.waldur.inject(Fault(path=TOTALS, status=503, times=1))
    assert history.load().ending is Ending.DONE
    assert len(history.in_waldur(JAN)) == 4


def test_an_outage_is_for_later_and_leaves_the_rest_to_be_reported(history: History) -> None:
    history.busy(JAN)
    history.site = history.connected(attempts=1)
    history.waldur.inject(Fault(kind=FaultKind.RESET, path=TOTALS, skip=1, times=None))
    outcome = history.load()
    assert outcome.ending is Ending.AGAIN
    assert outcome.error is not None and outcome.error.retryable
    history.waldur.faults.clear()
    history.loaded()
    assert len(history.in_waldur(JAN)) == 4


def test_the_cluster_s_outage_reports_nothing(history: History) -> None:
    history.busy(JAN)
    history.backend.outage = lambda call: call == "usage"
    history.waldur.requests.reset()
    outcome = history.load(reconcile_stale=True)
    assert outcome.ending is Ending.AGAIN
    assert history.sent() == []


def test_a_token_that_is_not_staff_s_has_to_be_changed(make_history: HistoryFactory) -> None:
    """Without the check Waldur itself refuses what was billed by usage."""
    history = make_history(user="agent")
    history.busy(JAN)
    outcome = history.load(staff_check=False)
    assert outcome.failures == (
        "Waldur takes no usage of 2024-01, which is closed, from this token: use the token of a staff user",
    )
    assert history.in_waldur(JAN) == {}
    known = report_state.load(history.state_dir, history.site.offering.uuid)
    assert known == report_state.ReportState(), "reports go on as before"


def test_a_refused_token_is_said_once(history: History) -> None:
    history.busy(JAN)
    history.waldur.inject(Fault(path=TOTALS, status=401, body='{"detail": "Invalid token."}', times=None))
    outcome = history.load()
    (failure,) = outcome.failures
    assert "Invalid token" in failure
    assert "check the staff token" in failure


def test_a_dry_run_only_says(history: History) -> None:
    history.ran("a_1", "u", 2, month=JAN)
    history.waldur.requests.reset()
    outcome = history.load(dry_run=True)
    assert (history.sent(), history.in_waldur(JAN)) == ([], {})
    assert texts(outcome, Mark.SENT) == [
        "[DRY-RUN] Would submit usage for resource a_1: {'cpu': 2.00}",
        "[DRY-RUN] Would submit usage of users for resource a_1, cpu: {'u': 2.00}",
    ]


@pytest.mark.parametrize("policy", [{"paused": True}, {"mode": "observe"}])
def test_an_offering_that_is_left_alone_gets_no_report(
    make_history: HistoryFactory, policy: dict[str, object]
) -> None:
    history = make_history(policy=policy)
    history.busy(JAN)
    outcome = history.load()
    assert outcome.ending is Ending.FAILED
    assert history.in_waldur(JAN) == {}
    assert outcome.failures[0].startswith("nothing is submitted: ")


def test_an_offering_without_our_components_is_a_failure(make_history: HistoryFactory) -> None:
    gpu = {"gpu": {"measured_unit": "h", "accounting_type": "usage", "label": "GPU"}}
    history = make_history(components=gpu)
    history.busy(JAN)
    (failure,) = history.load().failures
    assert failure.startswith(
        "Waldur's offering takes usage of no configured component (gpu): run load-components"
    )


def test_a_component_that_waldur_lacks_is_named(make_history: HistoryFactory) -> None:
    extra = {
        "cpu": {"measured_unit": "h", "accounting_type": "usage", "label": "CPU", "unit_factor": 60},
        "gpu": {"measured_unit": "h", "accounting_type": "usage", "label": "GPU"},
    }
    history = make_history(components=extra)
    history.busy(JAN)
    outcome = history.loaded()
    assert texts(outcome, Mark.WARNING) == ["Waldur's offering has no component gpu: run load-components"]
    assert history.in_waldur(JAN)["a_1"] == {"cpu": "1.00"}


def test_months_follow_the_site_s_zone(make_history: HistoryFactory) -> None:
    history = make_history(zone="Asia/Tokyo")
    history.busy(JAN)
    history.load()
    assert [query.zone for query in history.backend.queries] == ["Asia/Tokyo"]
    assert len(history.in_waldur(JAN)) == 4
