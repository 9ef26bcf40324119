# SPDX-License-Identifier: MIT
"""What Waldur is told of keys of resources (8.1), which no backend here makes.

wanted                                    told
create, rotate, pause, resume, update     RefuseKey, with what its owner reads
delete                                    ConfirmKeyDeletion: there is nothing to withdraw
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.core.model import KeyCommand
from agent.core.waldur_actions import ConfirmKeyDeletion, RefuseKey

REFUSAL = "The site's cluster has no keys: Waldur's wish to {} this one cannot be carried out."


def answers(commands: Iterable[KeyCommand]) -> Iterator[RefuseKey | ConfirmKeyDeletion]:
    """Yield one answer for each key that waits for one."""
    for each in commands:
        reason = f"resource {each.resource_uuid}"
        if each.action == "delete":
            yield ConfirmKeyDeletion(key=each.uuid, reason=reason)
        else:
            yield RefuseKey(key=each.uuid, message=REFUSAL.format(each.action), reason=reason)
