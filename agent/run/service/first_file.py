# SPDX-License-Identifier: MIT
"""The first configuration file of a site, of what Waldur says of its offerings and this host of its cluster. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from agent.core.model import AccountingType, OfferingFacts, WaldurComponent
from agent.core.printable import printable
from backends.base import FoundCluster

HEADER = """\
# Made by `waldur-site-cluster init`. Every other key has its default: docs/configuration.md lists them.
"""
# SLURM counts minutes, of memory in MiB.
MINUTES = {"minute": 1, "hour": 60, "day": 1440}
MEGABYTES = {"mb": 1, "mib": 1, "gb": 1024, "gib": 1024, "tb": 1024**2, "tib": 1024**2}
# Words of units that change no factor.
PLAIN = frozenset({"core", "cpu", "gpu", "node", "memory", "ram", "of"})
THOUSAND = "k"
# Of an offering that has no components yet.
USUAL: Mapping[str, Mapping[str, Any]] = {
    "cpu": {"measured_unit": "core-hours", "unit_factor": 60, "accounting_type": "limit", "label": "CPU"},
    "mem": {"measured_unit": "GB-hours", "unit_factor": 61440, "accounting_type": "limit", "label": "Memory"},
    "gres/gpu": {"measured_unit": "GPU-hours", "unit_factor": 60, "accounting_type": "limit", "label": "GPU"},
    "deposit": {"measured_unit": "EUR", "accounting_type": "limit", "label": "Deposit"},
}
WITHOUT_FACTORS = frozenset({"deposit"})
NEEDED_BY_SLURM = frozenset({"cpu", "mem"})


@dataclass(frozen=True, slots=True)
class FirstFile:
    """The text of a configuration file."""

    text: str
    # What a person has to look at, a sentence each; they stand in the text, too.
    notes: tuple[str, ...]
    # Names of offerings that have no components in Waldur yet.
    without_components: tuple[str, ...]


def composed(
    offerings: list[OfferingFacts], *, url: str, token_file: str, backend: str, cluster: FoundCluster
) -> FirstFile:
    """Return the file for these offerings, all on one cluster. `backend`: the name of its plugin."""
    notes: list[str] = []
    bodies = []
    for offering in offerings:
        components, found = components_of(offering, cluster)
        notes += found
        bodies.append({
            "name": offering.name,
            "waldur_api_url": url,
            "waldur_api_token_file": token_file,
            "waldur_offering_uuid": offering.uuid,
            "backend_type": backend,
            "order_processing_backend": backend,
            "membership_sync_backend": backend,
            "reporting_backend": backend,
            "username_management_backend": "base",
            # Whom Waldur does not know stays in the accounts.
            "preserve_unmanaged_backend_users": True,
            "backend_settings": {
                **cluster.settings,
                **({} if "deposit" in cluster.components else {"customer_prefix": "hpc_c_"}),
                "project_prefix": "hpc_p_",
                "allocation_prefix": "hpc_",
            },
            "backend_components": components,
        })  # fmt: skip
    if not cluster.name:
        notes.append("name the cluster in `backend_settings.cluster_name`: slurmrestd knows none of its own")
    notes = [printable(note) for note in notes]
    lines = "".join(f"# Look at it: {note}\n" for note in notes)
    text = yaml.safe_dump({"offerings": bodies}, sort_keys=False, allow_unicode=True, width=120)
    bare = tuple(offering.name for offering in offerings if not offering.components)
    return FirstFile(f"{HEADER}{lines}{text}", tuple(notes), bare)


def components_of(offering: OfferingFacts, cluster: FoundCluster) -> tuple[dict[str, Any], list[str]]:
    """Return `backend_components` of an offering as Waldur has them, and what is to be looked at.

    Of an offering without any, the usual ones of the cluster.
    """
    if not offering.components:
        usual = (cluster.components or NEEDED_BY_SLURM) & USUAL.keys()
        return {name: dict(body) for name, body in USUAL.items() if name in usual}, []
    found: dict[str, Any] = {}
    notes: list[str] = []
    for component in sorted(offering.components, key=lambda each: each.type):
        body, note = _component(component)
        found[component.type] = body
        place = f"offering {offering.name}, component {component.type}"
        generic = f"gres/{component.type}"
        if generic in cluster.components and component.type not in cluster.components:
            body["target_components"] = {generic: {"factor": body.pop("unit_factor")}}
            notes += [f"{place}: {note}"] if note else []
        elif cluster.components and component.type not in cluster.components:
            known = ", ".join(sorted(cluster.components))
            notes.append(
                f"{place}: this cluster counts {known}: say with `target_components` what it is made of"
            )
        elif note:
            notes.append(f"{place}: {note}")
    return found, notes


def _component(component: WaldurComponent) -> tuple[dict[str, Any], str]:
    fields = component.fields
    unit, billing = str(fields.get("measured_unit") or ""), str(fields.get("billing_type") or "")
    known = billing in set(AccountingType)
    body: dict[str, Any] = {
        "measured_unit": unit,
        "accounting_type": billing if known else AccountingType.USAGE.value,
        "label": str(fields.get("name") or component.type),
    }
    if component.type in WITHOUT_FACTORS:
        return body, ""
    factor = unit_factor(component.type, unit)
    body["unit_factor"] = 1 if factor is None else factor
    if factor is None:
        return body, f"how many minutes (of memory: MB-minutes) a unit {unit!r} has; the factor says 1"
    return body, "" if known else f"Waldur bills it by {billing!r}; `accounting_type` says usage"


def unit_factor(name: str, unit: str) -> int | None:
    """Return how many of SLURM's TRES-minutes one unit of Waldur is; None where a word of the unit is not known."""
    words = [word.removesuffix("s") for word in re.findall(r"[a-z]+", unit.lower())]
    minutes = [MINUTES[word] for word in words if word in MINUTES]
    sizes = [MEGABYTES[word] for word in words if word in MEGABYTES]
    known = {*MINUTES, *MEGABYTES, *PLAIN, THOUSAND}
    is_memory = name == "mem"
    if len(minutes) != 1 or len(sizes) != int(is_memory) or not known.issuperset(words):
        return None
    thousands: int = 1000 ** words.count(THOUSAND)
    return minutes[0] * (sizes[0] if is_memory else 1) * thousands
