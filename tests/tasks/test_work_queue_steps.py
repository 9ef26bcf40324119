# SPDX-License-Identifier: MIT
"""Every order of the steps of producers and workers of the work queue in one process, and a kill at each.

In the short run every order that deviates less from "who has begun goes on", and every eighth of the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tasks.queue.stores import MemoryStore
from tasks.queue.work import Request, WorkQueue
from tests.scale import FULL
from tests.tasks.queue_requests import KEY, POLL, RUN

STRIDE = 1 if FULL else 8


class Killed(BaseException):
    """The process of an actor ends here: nothing of it runs any more."""


class Steps:
    """Actors that run one at a time, each from step to step; `plan` says who goes next, and who is killed there."""

    def __init__(self, plan: list[int]) -> None:
        self.plan = plan
        self.choices: list[int] = []
        self._turns: dict[str, threading.Semaphore] = {}
        self._back = threading.Semaphore(0)
        self._waiting: list[str] = []
        self.killed: set[str] = set()
        self._threads: list[threading.Thread] = []
        self.errors: list[BaseException] = []

    def add(self, name: str, body: Callable[[], None]) -> None:
        self._turns[name] = threading.Semaphore(0)

        def run() -> None:
            self._turns[name].acquire()
            try:
                body()
            except Killed:
                pass
            except BaseException as error:  # noqa: BLE001  raised by the main thread
                self.errors.append(error)
            self._waiting.remove(name)
            self._back.release()

        self._waiting.append(name)
        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def step(self) -> None:
        """Called by an actor: others may come between here, or it ends here. Nothing of the main thread waits."""
        name = threading.current_thread().name
        if name in self._turns and name not in self.killed:
            self._back.release()
            self._turns[name].acquire()
        if name in self.killed:
            raise Killed

    def run(self, kill: Callable[[str], bool]) -> None:
        """Let the actors go on until all have ended. `kill`: whether one may be killed at its step."""
        while self._waiting:
            options = [(name, False) for name in self._waiting]
            options += [(name, True) for name in self._waiting if kill(name)]
            chosen = self.plan[len(self.choices)] if len(self.choices) < len(self.plan) else 0
            self.choices.append(len(options))
            name, is_killed = options[chosen]
            if is_killed:
                self.killed.add(name)
            self._turns[name].release()
            self._back.acquire()
            # Who has begun goes on, unless the plan says otherwise.
            if name in self._waiting:
                self._waiting.remove(name)
                self._waiting.insert(0, name)
        for thread in self._threads:
            thread.join()
        assert not self.errors, self.errors


class SteppedStore(MemoryStore):
    """Each step of the store is one of its actor; an actor is a process."""

    def __init__(self, steps: Steps) -> None:
        super().__init__(clock=lambda: 0.0)
        self.steps, self.dead = steps, set[str]()

    def update(self, name: str, change: Any) -> Any:
        self.steps.step()
        return super().update(name, change)

    def process(self) -> str:
        return threading.current_thread().name

    def has_ended(self, process: str, *, at_start: bool = False) -> bool:
        return process in self.dead


class World:
    """One key. `truth` is what Waldur has, `cluster` what was read of it by the last task that ended."""

    def __init__(self, plan: list[int]) -> None:
        self.steps = Steps(plan)
        self.store = SteppedStore(self.steps)
        self.queue = WorkQueue(self.store, self.send)
        self.messages: list[Request] = []
        self.at_work: set[str] = set()
        self.truth = self.cluster = self.passes = self.most = 0

    def send(self, request: Request) -> None:
        self.steps.step()
        self.messages.append(request)
        self.most = max(self.most, len(self.messages))

    def event(self) -> None:
        self.truth += 1
        self.queue.ask(f"asked:{KEY}", lambda: self.send(RUN))

    def consume(self) -> None:
        """A process of a worker: run what is in the queue. A message that was taken comes back when it dies."""
        name = threading.current_thread().name
        while self.messages:
            message = self.messages.pop(0)
            try:
                with self.queue.at_work(KEY, None if message is POLL else message) as is_ours:
                    if is_ours:
                        self._reconcile(name)
            except Killed:
                self.store.dead.add(name)
                self.at_work.discard(name)
                if message is not POLL:
                    self.messages.append(message)
                raise
            self.steps.step()

    def _reconcile(self, name: str) -> None:
        self.at_work.add(name)
        assert self.at_work == {name}, "two at work on one key"
        self.passes += 1
        seen = self.truth
        self.steps.step()
        self.cluster = max(self.cluster, seen)
        self.steps.step()
        self.at_work.remove(name)


def schedules(make: Callable[[list[int]], Steps], at_most: int) -> Iterator[Steps]:
    """Run every schedule, each once, depth first, with so many deviations from "who has begun goes on" at most; of
    those with most of them one of STRIDE.
    """
    todo: list[list[int]] = [[]]
    passed_over = 0
    while todo:
        plan = todo.pop()
        is_last = sum(choice > 0 for choice in plan) == at_most
        if is_last and (passed_over := (passed_over + 1) % STRIDE):
            continue
        steps = make(plan)
        yield steps
        if is_last:
            continue
        for position in range(len(plan), len(steps.choices)):
            padding = [0] * (position - len(plan))
            todo += [[*plan, *padding, choice] for choice in range(1, steps.choices[position])]


def explored(
    first: Request, *, events: int, deviations: int, kills: tuple[str, ...] = (), most_waiting: int
) -> int:
    """Explore all schedules of two workers while events come, and a message waits from the beginning; at the end of
    each a worker that starts takes what is left. Return how many there were.
    """

    def make(plan: list[int]) -> Steps:
        world = World(plan)
        if first is POLL:
            world.send(POLL)
        else:
            world.event()

        def bridge() -> None:
            for _ in range(events):
                world.event()
                world.steps.step()

        for name, body in (("one", world.consume), ("bridge", bridge), ("two", world.consume)):
            world.steps.add(name, body)
        world.steps.run(lambda name: name in kills and not world.steps.killed)
        world.store.dead |= {"one", "two"}
        world.queue.recover()
        world.consume()
        if "bridge" in world.steps.killed:
            # Its event was not acknowledged: it comes again.
            world.event()
            world.consume()
        assert world.cluster == world.truth, "a request was lost"
        assert not world.messages
        assert world.store.names("work:") == []
        assert world.most <= most_waiting, "a key was queued twice"
        return world.steps

    return sum(1 for _ in schedules(make, deviations))


@pytest.mark.parametrize("first", [RUN, POLL], ids=["event", "poll"])
def test_no_order_of_steps_loses_a_request_or_has_two_at_work(first: Request) -> None:
    # Besides the message that waits there is the one that the end of a task sends again.
    assert explored(first, events=2, deviations=3, most_waiting=2) > 1_000 // STRIDE


@pytest.mark.parametrize("first", [RUN, POLL], ids=["event", "poll"])
@pytest.mark.parametrize("killed", ["one", "bridge"])
def test_no_kill_at_any_step_loses_a_request(first: Request, killed: str) -> None:
    assert explored(first, events=1, deviations=3, kills=(killed,), most_waiting=3) > 500 // STRIDE
