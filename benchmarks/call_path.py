# SPDX-License-Identifier: MIT
"""How long the path of one piece of work through the code is: modules in which functions run, their lines, and
how often the work moves from one file to another.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from agent.run import passes
from benchmarks.parts import Parts
from rig.processes import REPOSITORY
from rig.site import configuration, site_of
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario

PRODUCT = tuple(str(REPOSITORY / room) for room in ("agent", "backends", "tasks"))


class CallPath:
    """The files of the product whose functions run, and how often one calls into another."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.moves = 0

    def follow(self, work: Callable[[], object]) -> None:
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        try:
            work()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _see(self, frame: FrameType, event: str, _argument: Any) -> None:
        # A class or a module that is made is no work: only functions have optimized code.
        name, is_function = frame.f_code.co_filename, frame.f_code.co_flags & inspect.CO_OPTIMIZED
        if event != "call" or not name.startswith(PRODUCT) or not is_function:
            return
        self.files.add(name)
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(PRODUCT):
            caller = caller.f_back
        self.moves += caller is not None and caller.f_code.co_filename != name

    def line(self, what: str) -> str:
        lines = sum(len(Path(name).read_text().splitlines()) for name in self.files)
        return (
            f"{what}: functions of {len(self.files)} modules ({lines} lines), {self.moves} moves between them"
        )


def run(parts: Parts) -> Iterator[str]:
    parts.slurm.reset()
    scenario = Scenario(members_per_project=3)
    with SimulatedWaldur(scenario=scenario) as waldur:
        site = site_of(configuration(waldur, parts.new_folder(), membership_sync_backend="slurm"))
        passes.process_orders(site)
        idle = CallPath()
        idle.follow(lambda: passes.process_orders(site))
        yield idle.line("an idle poll for orders")
        project = waldur.seed.project_uuids[0]
        order = waldur.place_create_order(project, "one", limits={"cpu": 10, "mem": 2})
        created = CallPath()
        created.follow(lambda: passes.process_orders(site, order_uuid=order))
        yield created.line("a create order")
        assert passes.sync_members(site).error is None
        inside = sorted(user for _, user in site.backend.observe().members())
        row = next(each for each in waldur.store.offering_users if each.username == inside[0])
        waldur.people.remove_member(project, waldur.store.users[row.user_uuid].username)
        left = CallPath()
        left.follow(lambda: passes.sync_members(site))
        yield left.line("a person who leaves a project")
