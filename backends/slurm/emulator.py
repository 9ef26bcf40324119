# SPDX-License-Identifier: MIT
"""Periodic settings in slurm-emulator instead of SLURM (`periodic_limits.emulator_mode`), through its control API.

The emulator makes an account that it does not know, and keeps TRES that a message does not name, as SLURM does.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from agent.core.actions import ClusterAction
from agent.core.errors import BackendError, BackendUnavailable, ParseError
from agent.core.periodic import DesiredSettings, LimitType, ObservedSettings
from agent.core.periodic_actions import ResetRawUsage, SetFairshare, SetPeriodicLimits
from agent.core.plans import Outcome
from agent.http.client import Bounds, HttpClient, NoAnswer, Timeouts

APPLY = "api/apply-periodic-settings"
STATUS = "api/status"
TIMEOUT_S = 10.0
KEYS = {
    LimitType.GRP_TRES_MINS: "grp_tres_mins",
    LimitType.MAX_TRES_MINS: "max_tres_mins",
    LimitType.GRP_TRES: "grp_tres",
}


class EmulatorSettings:
    """The settings of accounts in one emulator, reached at `url`."""

    def __init__(self, url: str, cluster: str) -> None:
        self._client = HttpClient(url, timeouts=Timeouts(read_s=TIMEOUT_S), bounds=Bounds(answer_s=TIMEOUT_S))
        self._cluster = {"cluster": cluster} if cluster else {}

    def state(self, account: str) -> ObservedSettings:
        """Return what the account has in the emulator: nothing where it is not there yet. Raises BackendError."""
        document = self._ask("GET", STATUS)
        accounts = document.get("accounts")
        if not isinstance(accounts, Mapping):
            raise ParseError(f"GET {STATUS}", str(document)[:80], "the emulator shows no accounts")
        held = accounts.get(account, {})
        limits: dict[LimitType, dict[str, int]] = {}
        for name, value in (held.get("limits") or {}).items():
            kind, colon, tres = name.partition(":")
            if colon and kind in set(LimitType):
                limits.setdefault(LimitType(kind), {})[tres] = int(value)
        share = held.get("fairshare")
        return ObservedSettings(int(share) if isinstance(share, int) else None, limits)

    def cannot(self, _asked: DesiredSettings, _observed: ObservedSettings) -> str:
        return ""

    def apply(self, actions: Sequence[ClusterAction]) -> list[Outcome]:
        """Post the settings in their order; after one that failed nothing more is tried."""
        outcomes: list[Outcome] = []
        for action in actions:
            body = {"resource_id": action.account, **_settings(action), **self._cluster}
            started_s, error = time.monotonic(), None
            try:
                self._ask("POST", APPLY, body)
            except BackendError as raised:
                error = raised
            line = f"POST {self._client.target(APPLY)} {json.dumps(body)}"
            outcomes.append(Outcome(action, error, (line,), time.monotonic() - started_s))
            if error:
                break
        return outcomes

    def _ask(self, method: str, path: str, body: Any = None) -> Mapping[str, Any]:
        try:
            answer = self._client.send(method, path, body=body)
        except NoAnswer as error:
            raise BackendUnavailable(f"{error}. Check periodic_limits.emulator_base_url") from error
        if answer.status >= 500:
            raise BackendUnavailable(
                f"{method} {path}: the emulator answered {answer.status}: {answer.detail()}"
            )
        document = answer.object()
        if answer.status >= 300 or document is None:
            raise BackendError(
                f"{method} {path}: the emulator answered {answer.status}: {answer.detail()}. Is "
                "periodic_limits.emulator_base_url the address of its control API (port 8080)?"
            )
        return document


def _settings(action: ClusterAction) -> dict[str, Any]:
    match action:
        case SetFairshare():
            return {"fairshare": action.after}
        case SetPeriodicLimits():
            return {KEYS[LimitType(action.limit_type)]: dict(action.after)}
        case ResetRawUsage():
            return {"reset_raw_usage": True}
    raise BackendError(f"the emulator has no periodic setting for {action.verb}")
