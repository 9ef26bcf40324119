# SPDX-License-Identifier: MIT
"""slurmrestd is killed in the middle of each kind of write: it counts as not done, and the next pass goes on."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.core.actions import (
    AddMember,
    AllowMember,
    BlockSubmission,
    ClusterAction,
    CreateAccount,
    CreateQos,
    DeleteAccount,
    DeleteQos,
    MoveDefaultAccount,
    RemoveMember,
    SetLimits,
    SetUserLimits,
)
from agent.core.association_actions import RemovePartition, SetMemberQos
from agent.core.errors import BackendUnavailable
from agent.core.model import Part
from agent.core.periodic_actions import SetFairshare
from agent.http.client import NoAnswer
from backends.base import Scope
from rig.processes import connections, wait_until
from rig.slurmrestd import Slurmrestd
from tests.backends.conftest import by_rest

TREE = Scope(frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS}))
# One of each kind of write, each on what those before it have made.
WRITES: Sequence[ClusterAction] = (
    CreateAccount(account="k_home", parent="root", description="d", organization="o"),
    CreateAccount(account="k_one", parent="k_home", description="d", organization="o"),
    CreateQos(account="k_qos"),
    AddMember(account="k_home", user="kim"),
    AddMember(account="k_one", user="kim", partitions=("main", "gpu")),
    SetLimits(account="k_one", after=(("cpu", 5),)),
    SetUserLimits(account="k_one", user="kim", after=(("cpu", 3),)),
    SetFairshare(account="k_one", after=7),
    SetMemberQos(account="k_one", user="kim", after=("normal",), default="normal"),
    BlockSubmission(account="k_one"),
    AllowMember(account="k_one", user="kim"),
    MoveDefaultAccount(account="k_one", user="kim", before="k_home"),
    MoveDefaultAccount(account="k_home", user="kim", before="k_one"),
    RemovePartition(account="k_one", user="kim", partition="gpu"),
    RemoveMember(account="k_one", user="kim"),
    RemoveMember(account="k_home", user="kim", is_default=True),
    DeleteAccount(account="k_one", parent="k_home"),
    DeleteQos(account="k_qos"),
)


class Killer:
    """Kills slurmrestd at the first write of a client, and starts it again when asked."""

    def __init__(self, server: Slurmrestd, client: Any) -> None:
        self._server, self._client = server, client
        self._send = client.send
        self._is_armed = False

    def arm(self, *, is_early: bool) -> None:
        """`is_early`: while slurmdbd has not read the request; else when it is done, and the answer is lost."""
        self._is_armed = True
        self._client.send = self._early if is_early else self._late

    def start_again(self) -> None:
        assert not self._is_armed, "no write was sent"
        self._client.send = self._send
        self._server.start()

    def _early(self, method: str, *words: Any, **options: Any) -> Any:
        if method == "GET" or not self._is_armed:
            return self._send(method, *words, **options)
        self._is_armed = False
        port = self._server.cluster.site.slurmdbd_port
        self._server.cluster.freeze_slurmdbd()
        before = connections(port)

        def kill() -> None:
            try:
                wait_until(
                    "slurmrestd at slurmdbd", lambda: bool(connections(port) - before), log=self._server.log
                )
            finally:
                self._server.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            return self._send(method, *words, **options)
        finally:
            killer.join()
            self._server.cluster.resume_slurmdbd()

    def _late(self, method: str, *words: Any, **options: Any) -> Any:
        answer = self._send(method, *words, **options)
        if method == "GET" or not self._is_armed:
            return answer
        self._is_armed = False
        self._server.kill()
        raise NoAnswer("it was killed before its answer came", "killed")


@pytest.mark.parametrize("is_early", [True, False], ids=["before slurmdbd has it", "after it is done"])
def test_a_write_without_an_answer_is_not_done_and_is_tried_again(
    real_slurmrestd: Slurmrestd, tmp_path: Path, is_early: bool
) -> None:
    real_slurmrestd.cluster.reset()
    backend: Any = by_rest(real_slurmrestd.access, tmp_path)()
    killer = Killer(real_slurmrestd, backend._client._client)
    seen = {}
    for action in WRITES:
        killer.arm(is_early=is_early)
        (outcome,) = backend.apply([action])
        assert isinstance(outcome.error, BackendUnavailable), action
        killer.start_again()
        (outcome,) = backend.apply([action])
        assert outcome.done, (action, outcome.error)
        seen[action] = backend.observe(TREE)
    full = seen[WRITES[11]]
    assert full.accounts["k_one"].limits == {"cpu": 5}
    assert {row.partition for row in full.rows_of("k_one", "kim")} == {"main", "gpu"}
    assert full.default_accounts["kim"] == "k_one"
    assert set(seen[WRITES[-1]].accounts) == {"root", "k_home"}
    assert not seen[WRITES[-1]].users_of("k_home")
    again = CreateAccount(account="k_one", parent="k_home", description="new", organization="o")
    assert backend.apply([again])[0].done
    assert backend.observe(TREE).accounts["k_one"].limits == {}
