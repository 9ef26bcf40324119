# SPDX-License-Identifier: MIT
"""Unknown is never absent: whatever fails in a pass, no member is removed, no resource erred and no limit lowered for
it.

One fault in each pass: each request, each read of the cluster and each write in turn, in every way it can fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent.core.actions import ClusterAction, RemoveMember, SetLimits
from agent.core.errors import BackendUnavailable, CommandDenied, CommandFailed, ParseError
from agent.core.model import Part, Snapshot
from agent.waldur.features import Features
from simulator.server.faults import Fault, FaultKind
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from simulator.world.store import Settings
from tests.agent.run.engine.worlds import Moment
from tests.scale import FULL
from tests.world import World

# In full more than 200 passes over all kinds of faults; each request and each call of the cluster in turn.
FULL_PASSES_OF_EACH, REQUESTS_AT_LEAST = 25, 15
FULL_CALLS, CALLS_AT_LEAST = 10, 8
PAGES_OF = 2
LEAVES = ("a_one", "ggran6")
PAGE = "<html><title>Sign in</title></html>"

REQUEST_FAULTS: dict[str, dict[str, Any]] = {
    "lost request": {"kind": FaultKind.RESET, "carried_out": False},
    "lost answer": {"kind": FaultKind.RESET, "carried_out": True},
    "server error": {"status": 500},
    "gateway error after it was done": {"status": 502, "carried_out": True},
    "forbidden": {"status": 403},
    "gone": {"status": 404, "body": PAGE},
    "sign-in page": {"status": 200, "body": PAGE, "carried_out": True},
    "cut body": {"kind": FaultKind.TRUNCATE},
}


@dataclass
class Tally:
    """What went wrong in all passes of a test."""

    passes: int = 0
    struck: int = 0
    removed_wrongly: int = 0
    erred_wrongly: int = 0
    cut_wrongly: int = 0
    not_in_step: int = 0

    def wrong(self) -> Counter[str]:
        return Counter(
            removed=self.removed_wrongly,
            erred=self.erred_wrongly,
            cut=self.cut_wrongly,
            out_of_step=self.not_in_step,
        )


class Eventful(World):
    """Something of every kind is due: members join and leave, a pause, limits, a QoS, an erred resource."""

    def __init__(self, waldur: SimulatedWaldur, folder: Path, *, source: str) -> None:
        super().__init__(
            waldur,
            folder,
            backend={"qos_default": "normal", "qos_paused": "stop", "qos_downscaled": "slow"},
            limits_source=source,
        )
        first, second = waldur.seed.project_uuids[:2]
        waldur.site.add_shared_account(first, "robot")
        waldur.site.add_shared_account(second, "course", kind="course")
        self.resources = [
            self.allocate(name, project=n % 2) for n, name in enumerate(("one", "two", "three"))
        ]
        self.converge()
        waldur.site.add_user_limit(self.resources[0], self.person("ffrost5"), component_type="cpu", limit=3)
        self.converge()
        self.calm = self.cluster
        self.leave("ggran6")
        self.join("newcomer", project=1)
        self.change(self.resources[0], state="Erred", error_message="old")
        self.change(self.resources[1], paused=True, last_sync=datetime.now(UTC) - timedelta(hours=1))
        if source == "cluster":
            self.alter("a_three", limits={"cpu": 1200, "mem": 2 * 61440})
        else:
            self.change(self.resources[2], limits={"cpu": 20, "mem": 2})
        self.users = {a: set(self.cluster.users_of(a)) for a in ("a_one", "a_two", "a_three")}
        waldur.requests.reset()

    def judge(self, tally: Tally, done: list[ClusterAction]) -> None:
        """What the pass with the fault did and should not have done."""
        tally.passes += 1
        for action in done:
            if isinstance(action, RemoveMember):
                tally.removed_wrongly += (action.account, action.user) not in {LEAVES, ("a_three", "ggran6")}
            if isinstance(action, SetLimits):
                tally.cut_wrongly += any(value < 600 for _, value in action.after)
        tally.erred_wrongly += sum(
            self.resource(uuid).state.value == "Erred" and self.resource(uuid).error_message != "old"
            for uuid in self.resources
        )

    def clean(self, tally: Tally) -> None:
        """The next passes without a fault end in step."""
        self.waldur.faults.clear()
        self.backend.outage = lambda _: False
        for _ in range(2):
            report = self.sync()
        expected = {
            "a_one": self.users["a_one"] - {"ggran6"},
            "a_two": self.users["a_two"] | {"newcomer"},
            "a_three": self.users["a_three"] - {"ggran6"},
        }
        is_right = (
            not report.failed
            and self.changes(report) == []
            and {account: self.members(account) for account in expected} == expected
            and {self.resource(uuid).state.value for uuid in self.resources} == {"OK"}
            and self.cluster.accounts["a_two"].default_qos == "stop"
            and self.cluster.accounts["a_three"].limits["cpu"] == 1200
            and self.resource(self.resources[2]).limits == {"cpu": 20, "mem": 2}
            and self.cluster.user_limits == {("a_one", "ffrost5"): {"cpu": 180}}
            and all(self.cluster.default_accounts.get(a.user) for a in self.cluster.associations)
        )
        tally.not_in_step += not is_right


Worlds = Callable[[int], Iterator[tuple[int, Eventful]]]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    """Yields for each pass a world that has not seen another; pages of two, so that every listing has a middle.

    Making one takes a dozen passes: there are two, which are had again as they were.
    """
    scenario = Scenario(members_per_project=3, projects_per_customer=2)
    with ExitStack() as servers:
        made = []
        for source in ("cluster", "waldur"):
            waldur = SimulatedWaldur(scenario=scenario, settings=Settings(page_size_max=PAGES_OF))
            servers.enter_context(waldur)
            folder = tmp_path_factory.mktemp(source)
            world = Eventful(waldur, folder, source=source)
            made.append((world, Moment(waldur, world.site, folder)))

        def again(passes: int) -> Iterator[tuple[int, Eventful]]:
            for number in range(passes):
                world, moment = made[number % 2]
                world.waldur.faults.clear()
                world.backend.outage = lambda _: False
                world.site = moment.again()
                yield number, world

        yield again


def reported(tally: Tally) -> None:
    print(f"\n{tally}")
    assert tally.wrong() == Counter(removed=0, erred=0, cut=0, out_of_step=0), tally


@pytest.mark.parametrize("fault", REQUEST_FAULTS)
def test_any_one_request_that_fails(worlds: Worlds, fault: str) -> None:
    tally = Tally()
    stride, passes = (1, FULL_PASSES_OF_EACH) if FULL else (8, 3)
    for number, world in worlds(passes):
        skip = number * stride + list(REQUEST_FAULTS).index(fault) % stride
        world.waldur.inject(Fault(skip=skip, times=1, **REQUEST_FAULTS[fault]))
        report = world.sync()
        tally.struck += world.waldur.faults.armed()[0][1]
        world.judge(tally, [o.action for o in report.outcomes if isinstance(o.action, ClusterAction)])
        if fault == "gone":
            # What a server seems to lack is asked for again after an hour, or by the next worker.
            world.site.client.features = Features()
        world.clean(tally)
    assert tally.struck >= min(passes - 2, REQUESTS_AT_LEAST)
    reported(tally)


@pytest.mark.parametrize(
    "listing",
    [
        "provider-resources/",
        "offering-users/",
        "project_permissions/",
        "list_project_service_accounts/",
    ],
)
def test_a_page_that_is_missing_in_the_middle_of_a_listing(worlds: Worlds, listing: str) -> None:
    """The link to the next page leads past one: what came is less than what was announced, and it is read again."""
    tally = Tally()
    for _, world in worlds(2):
        for number in range(5):
            world.waldur.site.add_shared_account(world.waldur.seed.project_uuids[0], f"robot{number}")
        fault = Fault(
            path=rf"{listing}$",
            method="GET",
            skip=1,
            status=200,
            body="[]",
            content_type="application/json",
            times=1,
        )
        world.waldur.inject(fault)
        report = world.sync()
        tally.struck += world.waldur.faults.armed()[0][1]
        assert report.error is None
        world.judge(tally, [o.action for o in report.outcomes if isinstance(o.action, ClusterAction)])
    assert tally.struck == tally.passes
    reported(tally)


class Failing:
    """Makes the nth call of the cluster fail, or answer with less than there is."""

    def __init__(self, world: Eventful, step: int, error: Exception | None, *, then: bool) -> None:
        self.calls = self.struck = 0
        self._step, self._error, self._then = step, error, then
        self._observe, self._carry_out = world.backend.observe, world.backend.memory.carry_out
        world.backend.observe = self.observe  # type: ignore[method-assign]
        world.backend.memory.carry_out = self.carry_out  # type: ignore[method-assign]
        self._world = world

    def observe(self, *args: Any) -> Snapshot:
        seen = self._observe(*args)
        if not self._strikes():
            return seen
        if self._error is not None:
            raise self._error
        return _half(seen, self._step)

    def carry_out(self, action: ClusterAction) -> None:
        if not self._strikes():
            self._carry_out(action)
            return
        if self._then:
            self._carry_out(action)
        raise self._error or BackendUnavailable("slurmdbd died in the middle")

    def mend(self) -> None:
        self._world.backend.observe = self._observe  # type: ignore[method-assign]
        self._world.backend.memory.carry_out = self._carry_out  # type: ignore[method-assign]

    def _strikes(self) -> bool:
        self.calls += 1
        strikes = self.calls == self._step + 1
        self.struck += strikes
        return strikes


def _half(seen: Snapshot, step: int) -> Snapshot:
    """A snapshot that lacks a part, and says so."""
    part, fields = PARTS[step % len(PARTS)]
    return replace(seen, **fields, complete=seen.complete - {part})


PARTS: tuple[tuple[Part, dict[str, Any]], ...] = (
    (Part.ASSOCIATIONS, {"associations": frozenset()}),
    (Part.DEFAULT_ACCOUNTS, {"default_accounts": {}}),
    (Part.ACCOUNTS, {"accounts": {}}),
    (Part.TRES, {"tres": frozenset()}),
    (Part.USER_LIMITS, {"user_limits": {}}),
)
COMMAND = {"returncode": 1, "stdout": ""}
CLUSTER_FAULTS: dict[str, tuple[Exception | None, bool]] = {
    "outage": (BackendUnavailable("the accounting database does not answer"), False),
    "outage after it was done": (BackendUnavailable("slurmdbd: broken pipe"), True),
    "cut answer": (ParseError("sacctmgr show assoc", "a_o", "the last line is cut"), False),
    "a part that was not read": (None, False),
    "no right": (CommandDenied(["sacctmgr"], **COMMAND, stderr="Access/permission denied"), False),
    "unknown words": (CommandFailed(["sacctmgr"], **COMMAND, stderr="?", retryable=True), False),
}


@pytest.mark.parametrize("fault", CLUSTER_FAULTS)
def test_any_one_read_or_write_of_the_cluster_that_fails(worlds: Worlds, fault: str) -> None:
    tally = Tally()
    error, then = CLUSTER_FAULTS[fault]
    stride, passes = (1, FULL_CALLS) if FULL else (4, 3)
    for number, world in worlds(passes):
        failing = Failing(world, number * stride, error, then=then)
        report = world.sync()
        tally.struck += failing.struck
        failing.mend()
        world.judge(tally, [o.action for o in report.outcomes if isinstance(o.action, ClusterAction)])
        world.clean(tally)
    assert tally.struck >= min(passes - 2, CALLS_AT_LEAST)
    reported(tally)


def test_a_write_that_is_refused_errs_the_resource_it_was_for_and_heals_with_the_next_pass(
    worlds: Worlds,
) -> None:
    """Refused for good, as far as is known: that is a reason; and it goes when the refusal goes."""
    tally = Tally()
    for number, world in worlds(6 if FULL else 3):
        refusal = CommandFailed(["sacctmgr"], returncode=1, stdout="", stderr="no")
        failing = Failing(world, 2 + number, refusal, then=False)
        report = world.sync()
        failing.mend()
        blamed = [uuid for uuid in world.resources if world.resource(uuid).error_message not in ("", "old")]
        failed = {o.action for o in report.outcomes if o.error}
        assert len(blamed) <= len(failed)
        world.clean(tally)
    assert tally.not_in_step == 0
