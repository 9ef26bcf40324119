# SPDX-License-Identifier: MIT
"""Run checks, each on its own: one that fails ends no other, and a cause that several meet is one problem."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace

from agent.core.checks import Check, CheckState
from agent.core.errors import CommandFailed, ConfigError, SiteAgentError, WaldurError

log = logging.getLogger(__name__)

# Causes that checks have met, each with the check and the offering that met it first: an error of Waldur's that is
# raised again without a request, and what a command of the cluster said.
Causes = dict[Hashable, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Probe:
    """One check."""

    name: str
    # Returns what it found; an error of it is a problem.
    look: Callable[[], Iterable[Check]]
    # What to do about such a problem.
    remedy: str
    about: str = ""


def run(probes: Iterable[Probe], known: Causes | None = None) -> Iterator[Check]:
    """Yield what they find, in their order, each as soon as it has been looked at. `known`: of checks before them."""
    causes = {} if known is None else known
    for probe in probes:
        yield from _run(probe, causes)


def failed(found: Iterable[Check]) -> bool:
    return any(check.state is CheckState.PROBLEM for check in found)


def _run(probe: Probe, known: Causes) -> list[Check]:
    try:
        return [replace(check, about=check.about or probe.about) for check in probe.look()]
    except ConfigError as error:
        remedy = "correct the configuration (`config-check` shows all that is wrong with it)"
        return [Check(probe.name, CheckState.PROBLEM, str(error), remedy, probe.about)]
    except WaldurError as error:
        if first := _met_before(error, probe, known):
            return [
                Check(probe.name, CheckState.UNKNOWN, f"not looked at: as for {first}", about=probe.about)
            ]
        # A refusal says itself what to do.
        remedy = "do what the line says" if error.status in (401, 403, 404) else probe.remedy
        return [Check(probe.name, CheckState.PROBLEM, str(error), remedy, probe.about)]
    except (SiteAgentError, OSError) as error:
        if isinstance(error, CommandFailed) and (first := _met_before(error.cause, probe, known)):
            return [Check(probe.name, CheckState.UNKNOWN, f"failed as for {first}", about=probe.about)]
        return [Check(probe.name, CheckState.PROBLEM, str(error), probe.remedy, probe.about)]
    except Exception as error:  # noqa: BLE001  (of a plugin, or ours: the other checks are wanted all the more)
        log.warning("the check %s failed", probe.name, exc_info=True)
        sentence = f"the check itself failed: {type(error).__name__}: {error}"
        return [Check(probe.name, CheckState.PROBLEM, sentence, "report it with the log lines", probe.about)]


def _met_before(cause: Hashable, probe: Probe, known: Causes) -> str:
    """Return the check that met a cause first, with its offering where that is another; empty where it is this one."""
    name, about = known.setdefault(cause, (probe.name, probe.about))
    if about != probe.about:
        return f"{name} of {about}"
    return name if name != probe.name else ""
