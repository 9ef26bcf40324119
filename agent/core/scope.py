# SPDX-License-Identifier: MIT
"""What a pass is about."""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.model import Resource


@dataclass(frozen=True, slots=True)
class PassScope:
    """What a pass covers: everything, or an order, or some resources and projects that events named, by uuid."""

    resources: frozenset[str] = frozenset()
    projects: frozenset[str] = frozenset()
    order: str = ""

    @classmethod
    def of(cls, *, resource_uuid: str = "", project_uuid: str = "") -> PassScope:
        """Return the scope of one resource or project; with neither everything."""
        return cls(
            frozenset({resource_uuid} if resource_uuid else ()),
            frozenset({project_uuid} if project_uuid else ()),
        )

    @property
    def is_everything(self) -> bool:
        return not (self.resources or self.projects or self.order)

    def __len__(self) -> int:
        return len(self.resources) + len(self.projects)

    def __str__(self) -> str:
        """Return the uuid where it is one, else how many it is about; empty for everything."""
        if self.order:
            return self.order
        if len(self) == 1:
            return next(iter(self.resources or self.projects))
        counts = ((len(self.projects), "projects"), (len(self.resources), "resources"))
        return " and ".join(f"{count} {what}" for count, what in counts if count)

    def covers(self, resource: Resource) -> bool:
        return self.is_everything or resource.uuid in self.resources or resource.project_uuid in self.projects


EVERYTHING = PassScope()
