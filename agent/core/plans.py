# SPDX-License-Identifier: MIT
"""A plan: actions in their order, as text and as JSON; and what became of each action."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any

from agent.core.actions import ACTION_CLASSES, Action, ClusterAction
from agent.core.errors import SiteAgentError

MODULES = ("association", "directory", "host", "key", "periodic", "usage", "waldur")


def action_classes() -> Mapping[str, type[Action]]:
    """Return all classes of actions by name. Their modules are imported here: only who reads a plan needs all."""
    for name in MODULES:
        import_module(f"agent.core.{name}_actions")
    return ACTION_CLASSES


def action_from_json(record: Mapping[str, Any]) -> Action:
    """Return the action that `as_json` wrote. Raises KeyError for an unknown kind."""
    kind = action_classes()[record["action"]]
    names = {f.name for f in fields(kind)}
    return kind(**{name: _frozen(value) for name, value in record.items() if name in names})


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions in the order in which they must happen. Equal actions appear once."""

    actions: tuple[Action, ...] = ()

    @classmethod
    def of(cls, actions: Iterable[Action]) -> Plan:
        return cls(tuple(dict.fromkeys(actions)))

    def __iter__(self) -> Iterator[Action]:
        return iter(self.actions)

    def __bool__(self) -> bool:
        return bool(self.actions)

    def cluster_actions(self) -> tuple[ClusterAction, ...]:
        return tuple(a for a in self.actions if isinstance(a, ClusterAction))

    def render(self) -> str:
        return "\n".join(action.render() for action in self.actions)

    def to_json(self) -> str:
        return json.dumps([action.as_json() for action in self.actions], ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        return cls(tuple(action_from_json(record) for record in json.loads(text)))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one action."""

    action: Action
    # None when it was carried out.
    error: SiteAgentError | None = None
    commands: tuple[str, ...] = ()
    duration_s: float = 0.0

    @property
    def done(self) -> bool:
        return self.error is None
