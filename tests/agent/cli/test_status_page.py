# SPDX-License-Identifier: MIT
"""`status --html`: what needs a person stands first, and all of it fits on a desk and on a phone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent.cli import status_page
from agent.config.model import Mode
from agent.core.errors import StateError
from agent.run.diagnosis.picture import (
    BrokerStatus,
    ModeStatus,
    OfferingStatus,
    Picture,
    QueueStatus,
    StuckOrder,
    TaskStatus,
    WaitingPlan,
)
from agent.state.held_plans import Approval, HeldPlans, HeldRow
from agent.state.hints import Drift, Skipped
from rig.processes import REPOSITORY, wait_until
from rig.site import settings_of
from simulator.demo.clusters import SLURM, EndedJob
from simulator.demo.parts import COMMANDS
from tests.agent.cli.conftest import Command
from tests.agent.cli.operator_site import OperatorSite
from tests.agent.cli.usage.browser import Browser

MODE = Mode.ORDER_PROCESS
AWAY = "redis://127.0.0.1:1/0"
RUN = ("run", "order_process", "--once")
EVIL = "<script>document.title='evil'</script>"


@pytest.fixture(autouse=True)
def _no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WALDUR_SITE_AGENT_BROKER_URL", AWAY)


@pytest.fixture
def busy(site: OperatorSite, command: Command, tmp_path: Path) -> str:
    """A configuration under which a plan waits, an account has used something, and a pass has failed."""
    for name in ("one", EVIL):
        site.place(name)
    config = site.configure(
        policy={"max_removed_accounts": 1}, reporting_backend="slurm", name=f"Cluster {EVIL}"
    )
    assert command(*RUN, "-c", config).code == 0
    (tmp_path / COMMANDS).symlink_to(site.commands)
    SLURM.use(tmp_path, [EndedJob("a_one", "aarvo12", datetime.now(), 2)])
    for record in site.waldur.site.state()["resources"]:
        site.waldur.orders.place_terminate(record["uuid"])
    assert command(*RUN, "-c", config).code == 0
    return config


def written(command: Command, config: str, page: Path) -> str:
    said = command("status", "--html", str(page), "-c", config)
    assert said.code == 0, said.err
    assert f"written to {page}" in said.err
    assert said.out == ""
    return page.read_text()


@pytest.mark.real_part
@pytest.mark.parametrize("width", [375, 1200])
def test_a_busy_site_is_drawn_and_fits(
    browser: Browser, command: Command, busy: str, tmp_path: Path, width: int
) -> None:
    page = tmp_path / "status.html"
    written(command, busy, page)
    browser.open(page, width=width)
    assert browser.complaints == []
    assert set(browser.requests) <= {page.as_uri(), "data:,"}
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate("document.querySelectorAll('script').length") == 0
    needs: list[str] = browser.evaluate(
        "[...document.querySelectorAll('.needs li, .held')].map(e => e.innerText)"
    )
    assert browser.evaluate("document.title").startswith(f"{len(needs)} to look at")
    assert any("does not answer" in need and "start the broker" in need for need in needs), "it is away"
    (held,) = [need for need in needs if "held for" in need]
    plan = held.split("approve ")[1].split("\n")[0]
    assert browser.evaluate(f"document.querySelector('#plan-{plan} code').innerText").endswith(plan)
    seen = browser.evaluate("document.body.innerText")
    for sentence in ("2 accounts would be deleted or emptied at once", "Connection refused"):
        assert seen.count(sentence) == 1, "a sentence stands once"
    tables = "[...document.querySelectorAll('table')]"
    assert browser.evaluate(f"{tables}.every(e => e.scrollWidth <= e.parentElement.clientWidth)"), (
        "rows stack"
    )
    bars: list[str] = browser.evaluate("[...document.querySelectorAll('.bars .who')].map(e => e.innerText)")
    assert any("a_one" in bar for bar in bars), "usage against limits"
    rows: list[str] = browser.evaluate("[...document.querySelectorAll('tbody tr')].map(e => e.innerText)")
    assert sum("waiting for" in row for row in rows) == 2, "orders that are not finished"


def test_all_that_a_picture_can_hold_is_drawn(site: OperatorSite) -> None:
    settings = settings_of(Path(site.configure()))
    (offering,) = settings.offerings
    now = datetime.now(UTC)
    held = HeldPlans(settings.state_dir, offering, MODE)
    plan = HeldRow(
        "ab" * 16, "all", "too many", "demo", {str(n): f"remove user{n}" for n in range(21)}, since=now
    )
    approval = Approval("cd" * 16, "ann", now, now + timedelta(hours=2), {})
    drift = Drift("2026-11-25", "2026-11-24", {"add member": 2, "set limits": 1})
    left = Skipped("2026-11-24", 3, ("delete account x",))
    mode = ModeStatus(MODE, timedelta(minutes=5), (), left, drift, None, None, None, None, None, "")
    stuck = StuckOrder(
        "e" * 32, "Create", "retry", "a_one", "no right", now, now + timedelta(hours=1), "a retry"
    )
    late = replace(stuck, result="stuck", next_try=None)
    waiting = (WaitingPlan(held, plan, None), WaitingPlan(held, replace(plan, id="cd" * 16), approval))
    broker = BrokerStatus(
        "redis://here",
        queues=(QueueStatus("site.demo", 4, ("one@here",)), QueueStatus("site.other", None)),
        running=(TaskStatus("orders.poll", ("x",), "one@here", since=now),),
        scheduled=(TaskStatus("orders.one", ("y",), "one@here", due=now + timedelta(minutes=3)),),
        unacknowledged=2,
        beats=("here:1",),
        covered={offering.uuid: ("order_process",)},
    )
    found = Picture(
        now, settings.state_dir, (OfferingStatus(offering, "", waiting, (mode,), (stuck, late)),), broker
    )
    page = status_page.render(found, {offering.uuid: StateError("no sacct")})
    words = " ".join(re.sub("<[^>]*>", " ", page.split("</style>")[1]).split())
    for expected in (
        f"State in {settings.state_dir} .",
        "21 actions of order_process, all. Nothing of it is done before an operator approves it: waldur-site-cluster",
        "and 1 more",
        "yet: approved by ann, in * it ends.",
        "an order is stuck for 0 min: no right",
        "Create eeeeeeee a_one retry for 0 min as above in *, by a retry",
        "stuck for 0 min as above none is planned",
        "order_process no pass has ended on this head node yet",
        "Drift of order_process since 2026-11-24: 2 add member, 1 set limits.",
        "3 actions of order_process skipped delete account x",
        "Usage could not be read: no sacct",
        "Beat: here:1. Taken and not done yet: 2.",
        "site.demo 4 one@here site.other unknown none serves it",
        "At work for 0 min : orders.poll x on one@here",
        "Comes back in * : orders.one y on one@here",
        f"The bridge listens for order_process of {offering.uuid} .",
    ):
        assert re.search(re.escape(expected).replace(r"\*", r"[\w ]+"), words), (expected, words)


def test_a_site_where_all_is_well_says_so(site: OperatorSite, command: Command, tmp_path: Path) -> None:
    config = site.configure()
    command(*RUN, "-c", config)
    text = written(command, config, tmp_path / "status.html")
    assert text.count("<li>") == 1, "only the broker, which is away here"
    assert 'http-equiv="refresh"' not in text
    assert (tmp_path / "status.html").stat().st_mode & 0o777 == 0o600


def test_it_is_kept_up_to_date_until_it_is_stopped(site: OperatorSite, tmp_path: Path) -> None:
    page = tmp_path / "status.html"
    words = ["status", "--html", str(page), "--every", "5", "-c", site.configure()]
    keeper = subprocess.Popen(
        [sys.executable, "manage.py", *words], cwd=REPOSITORY, env=dict(os.environ), stderr=subprocess.PIPE
    )
    wait_until("the page", page.exists)
    first = page.stat().st_ino
    wait_until("the page again", lambda: page.stat().st_ino != first)
    assert 'http-equiv="refresh" content="5"' in page.read_text()
    keeper.send_signal(signal.SIGINT)
    _, said = keeper.communicate(timeout=600)
    assert (keeper.returncode, said.decode()) == (0, f"{page} is not written any more\n")


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("--every", "10"), 2, "--every is for a page: add --html FILE."),
        (("--html", "/no/such/folder/page.html"), 1, "there is no folder /no/such/folder"),
    ],
)
def test_what_is_asked_wrongly(
    site: OperatorSite, command: Command, words: tuple[str, ...], code: int, sentence: str
) -> None:
    said = command("status", *words, "-c", site.configure())
    assert said.code == code
    assert sentence in said.err
