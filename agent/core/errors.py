# SPDX-License-Identifier: MIT
"""The error tree. What callers decide by is `retryable`: may the same step succeed later, unchanged?

Exceptions of libraries (requests, OSError, marshmallow ...) stop at the module that owns the
library and are chained to one of these, so that a reader of a log sees one family of errors.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence

# What a command said goes into messages, logs and Waldur: a page of it, not a gigabyte.
SAID_AT_MOST = 4000


class SiteAgentError(Exception):
    """Base of all our errors; the text is written for the operator who reads it at night."""

    retryable: bool = False


class ConfigError(SiteAgentError):
    """The configuration cannot be used; nothing was started."""


class StateError(SiteAgentError):
    """What the agent remembers on disk cannot be used: nothing is known of pauses, approvals and budgets."""


class StateUnreadable(StateError):
    """The state file is damaged, newer than this agent, or cannot be opened. It stays as it is: a person decides."""


class StateUnwritable(StateError):
    """Nothing can be written down: a full disk, a read-only folder, missing rights."""


class StateBusy(StateError):
    """Another process has been writing for too long."""

    retryable = True


class PlanRefused(SiteAgentError):
    """What was asked is wrong in itself: doing it later would not help (a bad name, a bad limit)."""


class WaldurError(SiteAgentError):
    """A request to Waldur failed. `status` is None when no answer came."""

    def __init__(
        self, message: str, *, method: str, path: str, status: int | None = None, detail: str = ""
    ) -> None:
        self.method = method
        self.path = path
        self.status = status
        self.detail = detail
        # No answer, 429 and 5xx say nothing about the request itself: it may be sent again later.
        self.retryable = status is None or status == 429 or status >= 500
        super().__init__(message)

    @property
    def denied(self) -> bool:
        """Return whether the token is wrong, expired, or lacks a right: an operator must act; no order is at fault."""
        return self.status in (401, 403)


class WaldurAnswerError(WaldurError):
    """An answer came that is not what Waldur sends (not JSON, not a list, a broken page)."""

    def __init__(self, message: str, *, method: str, path: str, status: int | None = None) -> None:
        super().__init__(message, method=method, path=path, status=status)
        self.retryable = True


class WaldurLacks(WaldurError):
    """This server has no such endpoint (404 or 405 on a path that newer servers have)."""


class OrderErred(WaldurError):
    """Waldur has set an order erred by itself. Servers of 2024 do so a moment after the approval (5.8.4)."""


class BackendError(SiteAgentError):
    """The cluster's side failed; permanent unless a subclass says otherwise."""

    # The agent's host or rights are at fault, and no account: an operator must act.
    of_host: bool = False


class BackendUnavailable(BackendError):
    """The accounting system cannot be reached or did not answer in time: nothing is known. `brief`: the same without
    the command.
    """

    retryable = True

    def __init__(self, message: str, *, brief: str = "") -> None:
        self.brief = brief or message
        super().__init__(message)


class AnswerTooSlow(BackendUnavailable):
    """A read did not end in time and was killed. The database goes on with it (slurmdbd 22.05, for up to 20 minutes):
    it is not asked again at once.
    """


class PluginFailed(BackendUnavailable):
    """A plugin of the reference raised an exception, or reported what is no usage: what it was asked for is unknown."""


class CommandFailed(BackendError):
    """A command ended with an error. `retryable` when its words point to an outage. `lines`: how many it had printed
    that are read already, and not in `stdout`.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        returncode: int,
        stdout: str,
        stderr: str,
        retryable: bool = False,
        lines: int = 0,
    ) -> None:
        self.argv = tuple(argv)
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr
        self.retryable = retryable
        words = " / ".join(line.strip() for line in (stderr or stdout).splitlines() if line.strip())
        after = f" after {lines} line{'s' if lines > 1 else ''}" if lines else ""
        self.said = words[:SAID_AT_MOST] or ("no word why" if lines else "no output")
        # Equal for other commands of the program that failed for the same reason.
        self.cause = (self.argv[0], self.said)
        super().__init__(f"`{' '.join(argv)}` ended with {returncode}{after}: {self.said}")


class CommandDenied(CommandFailed):
    """The agent's user lacks a right on the cluster."""

    of_host = True


class MemberRefused(BackendError):
    """The cluster refuses a member's name, while the account and its other members stand."""


class ParseError(BackendError):
    """A command's output is not what its version prints: the whole answer is unknown."""

    retryable = True

    def __init__(self, command: str, line: str, problem: str) -> None:
        self.line = line
        super().__init__(f"cannot read the output of `{command}`: {problem}, in line {line[:200]!r}")


class ClusterBusy(BackendError):
    """Another process of ours is writing to this cluster; its write is left to finish."""

    retryable = True


class JobsStillActive(BackendError):
    """Jobs of the account have not ended yet: the removal goes on in a later pass."""

    retryable = True


class AccountsLost(BackendError):
    """Accounts that Waldur names are gone from the cluster, so many at once that the site must be at fault: its
    database was emptied, or it is another cluster. Nothing is done until a person has looked.
    """

    of_host = True


class NotEmpty(BackendError):
    """The account has got users or accounts below it since its removal was planned; a later pass plans anew."""

    retryable = True


class NotApplied(BackendError):
    """The command said yes, yet reading the cluster back shows that nothing changed."""

    retryable = True


class DoneInPart(BackendError):
    """The cluster did what it can, and no later pass will do more: what is missing is reported, and nothing waits."""


class PersonMustAct(SiteAgentError):
    """There is no username until the person has done something; Waldur shows the text and the link to them."""

    def __init__(self, message: str, *, comment_url: str = "") -> None:
        self.comment_url = comment_url
        super().__init__(message)


class AccountLinkingRequired(PersonMustAct):
    """The person's account at the site must be linked to the one in Waldur first."""


class AdditionalValidationRequired(PersonMustAct):
    """An operator must look at the person first (a paper to sign, an identity to be proved)."""


class OfferingPaused(SiteAgentError):
    """An operator has paused the offering: what was asked waits for the end of the pause."""

    retryable = True


class PassUnfinished(SiteAgentError):
    """A pass used up its time, or yielded to another; what it did stays, and the next one continues."""

    retryable = True


# What was asked of Waldur, before what became of it.
# How a cause begins when a server gave no answer.
NO_ANSWER = "no answer"
_REQUEST = re.compile(rf"^[A-Z]+ \S+: (?=Waldur answered|{NO_ANSWER})")


def cause_of(sentence: str) -> str:
    """Return what an error says without the request that it is about: one cause fails many requests."""
    return _REQUEST.sub("", sentence)


def by_cause(errors: Iterable[tuple[str, SiteAgentError]]) -> Iterator[tuple[str, SiteAgentError]]:
    """Yield for each cause the first error with it, and all names that it was met with, joined by commas."""
    found: dict[Hashable, tuple[dict[str, None], SiteAgentError]] = {}
    for name, error in errors:
        cause = error.cause if isinstance(error, CommandFailed) else cause_of(str(error))
        found.setdefault(cause, ({}, error))[0][name] = None
    for names, error in found.values():
        yield ", ".join(names), error


INTERNAL = "Internal backend error. Please contact the service provider."


def words_for_customers(error: SiteAgentError, *, with_details: bool) -> str:
    """Return what Waldur shows of an error. Without details: what a command said and not how it was called, and
    nothing of errors that are neither the cluster's nor the request's own.
    """
    if with_details:
        return str(error)
    if isinstance(error, CommandFailed):
        return error.said
    return str(error) if isinstance(error, BackendError | PlanRefused) else INTERNAL
