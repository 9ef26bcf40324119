# SPDX-License-Identifier: MIT
"""Run checks, each on its own: one that fails ends no other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from agent.core.checks import Check, CheckState
from agent.core.errors import ConfigError, SiteAgentError, WaldurError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Probe:
    """One check."""

    name: str
    # Returns what it found; an error of it is a problem.
    look: Callable[[], Iterable[Check]]
    # What to do about such a problem.
    remedy: str
    about: str = ""


def run(probes: Iterable[Probe]) -> list[Check]:
    """Return what all of them found, in their order. An error of Waldur's that several of them raise stands once."""
    known: dict[WaldurError, str] = {}
    return [check for probe in probes for check in _run(probe, known)]


def failed(found: Iterable[Check]) -> bool:
    return any(check.state is CheckState.PROBLEM for check in found)


def _run(probe: Probe, known: dict[WaldurError, str]) -> list[Check]:
    """`known`: the first check that raised an error. A later one with the same error has sent no request."""
    try:
        return [replace(check, about=check.about or probe.about) for check in probe.look()]
    except ConfigError as error:
        remedy = "correct the configuration (`config-check` shows all that is wrong with it)"
        return [Check(probe.name, CheckState.PROBLEM, str(error), remedy, probe.about)]
    except WaldurError as error:
        first = known.setdefault(error, probe.name)
        if first != probe.name:
            said = f"not looked at: as for {first}"
            return [Check(probe.name, CheckState.UNKNOWN, said, about=probe.about)]
        # A refusal says itself what to do.
        remedy = "do what the line says" if error.status in (401, 403, 404) else probe.remedy
        return [Check(probe.name, CheckState.PROBLEM, str(error), remedy, probe.about)]
    except (SiteAgentError, OSError) as error:
        return [Check(probe.name, CheckState.PROBLEM, str(error), probe.remedy, probe.about)]
    except Exception as error:  # noqa: BLE001  (of a plugin, or ours: the other checks are wanted all the more)
        log.warning("the check %s failed", probe.name, exc_info=True)
        sentence = f"the check itself failed: {type(error).__name__}: {error}"
        return [Check(probe.name, CheckState.PROBLEM, sentence, "report it with the log lines", probe.about)]
