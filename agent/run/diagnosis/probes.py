# SPDX-License-Identifier: MIT
"""Run checks, each on its own: one that fails ends no other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from agent.core.checks import Check, CheckState
from agent.core.errors import ConfigError, SiteAgentError, WaldurError, cause_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Probe:
    """One check. `look` returns what it found; an error of it is a problem, with `remedy` as what to do."""

    name: str
    look: Callable[[], Iterable[Check]]
    remedy: str
    about: str = ""


def run(probes: Iterable[Probe]) -> list[Check]:
    """Return what all of them found, in their order. What Waldur says to several checks of an offering stands once."""
    known: dict[tuple[str, str], str] = {}
    return [check for probe in probes for check in _run(probe, known)]


def failed(found: Iterable[Check]) -> bool:
    return any(check.state is CheckState.PROBLEM for check in found)


def _run(probe: Probe, known: dict[tuple[str, str], str]) -> list[Check]:
    """`known`: the first check to which Waldur said something, by offering and what it said."""
    try:
        return [replace(check, about=probe.about) for check in probe.look()]
    except ConfigError as error:
        remedy = "correct the configuration (`config-check` shows all that is wrong with it)"
        return [Check(probe.name, CheckState.PROBLEM, str(error), remedy, probe.about)]
    except WaldurError as error:
        first = known.setdefault((probe.about, cause_of(str(error))), probe.name)
        if first != probe.name:
            return [
                Check(probe.name, CheckState.UNKNOWN, f"not looked at: as for {first}", about=probe.about)
            ]
        # A refusal says itself what to do.
        remedy = "do what the line says" if error.status in (401, 403, 404) else probe.remedy
        return [Check(probe.name, CheckState.PROBLEM, str(error), remedy, probe.about)]
    except (SiteAgentError, OSError) as error:
        return [Check(probe.name, CheckState.PROBLEM, str(error), probe.remedy, probe.about)]
    except Exception as error:  # noqa: BLE001  (of a plugin, or ours: the other checks are wanted all the more)
        log.warning("the check %s failed", probe.name, exc_info=True)
        sentence = f"the check itself failed: {type(error).__name__}: {error}"
        return [Check(probe.name, CheckState.PROBLEM, sentence, "report it with the log lines", probe.about)]
