# SPDX-License-Identifier: MIT
"""Messages of periodic usage policies: read strictly, since a message is the only place where its figures are.

What is not as Waldur writes it raises PlanRefused, with a sentence for the policy's log.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from agent.core.errors import PlanRefused
from agent.core.periodic import DesiredSettings, LimitType, is_to_come

ACTION = "apply_periodic_settings"
# SLURM 22.05 takes up to 2^31-2; the next number means `parent`.
FAIRSHARE_AT_MOST = 2**31 - 2
LIMIT_AT_MOST = 2**62
TRES_AT_MOST = 64
# As Python takes "1_0" and digits of all scripts, and SLURM does not.
NUMBER = re.compile(r"[0-9]{1,30}(\.[0-9]{0,30})?([eE][+-]?[0-9]{1,3})?")
KEYS = {
    "grp_tres_mins": LimitType.GRP_TRES_MINS,
    "max_tres_mins": LimitType.MAX_TRES_MINS,
    "grp_tres": LimitType.GRP_TRES,
}


def desired_settings(document: Mapping[str, Any], usual: LimitType | None = None) -> DesiredSettings:
    """Return what the message asks for; limits of a message without a type are of the `usual` one, where there is one.

    Raises PlanRefused.
    """
    if document.get("action") != ACTION:
        raise PlanRefused(f"its action is {_brief(document.get('action'))}, and {ACTION} is known only")
    account = document.get("backend_id")
    if not isinstance(account, str) or not account.strip():
        raise PlanRefused("it has no backend_id")
    settings = document.get("settings")
    if not isinstance(settings, Mapping):
        raise PlanRefused("its settings are no object")
    resets = settings.get("reset_raw_usage", False)
    if not isinstance(resets, bool):
        raise PlanRefused(f"its reset_raw_usage is {_brief(resets)}, not true or false")
    fairshare = settings.get("fairshare")
    if fairshare is not None:
        # 0 is none: no share at all would stop the account permanently.
        fairshare = _number("fairshare", fairshare, FAIRSHARE_AT_MOST) or None
    carried = settings.get("carryover_details")
    before = carried.get("previous_period") if isinstance(carried, Mapping) else None
    return DesiredSettings(
        account.strip(),
        fairshare,
        _limits(settings, usual),
        resets,
        previous_period=before if isinstance(before, str) else "",
    )


def written_at(document: Mapping[str, Any], now: datetime) -> datetime:
    """Return when Waldur wrote the message, in UTC without a zone; `now` where it does not say.

    Raises PlanRefused, for a time to come as well, behind which everything that follows would be old.
    """
    text = document.get("timestamp")
    if text is None:
        return now
    try:
        found = datetime.fromisoformat(str(text))
        found = found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found
    except (ValueError, OverflowError) as error:
        raise PlanRefused(f"its timestamp is {_brief(text)}, which is no date and time") from error
    if is_to_come(found, now):
        raise PlanRefused(
            f"its timestamp is {_brief(text)}, which is to come: a clock is wrong, Waldur's or the one here ({now} UTC)"
        )
    return found


def _limits(settings: Mapping[str, Any], usual: LimitType | None) -> dict[LimitType, dict[str, int]]:
    named = settings.get("limit_type")
    given = [key for key in KEYS if settings.get(key)]
    if named is None and usual and given:
        if len(given) > 1:
            raise PlanRefused(
                f"it has {' and '.join(given)}, and periodic_limits.limit_type is for one of them"
            )
        return {usual: _by_tres(given[0], settings[given[0]])}
    found: dict[LimitType, dict[str, int]] = {}
    for key, limit_type in KEYS.items():
        values = settings.get(key)
        if not values:
            continue
        if named not in (None, limit_type):
            raise PlanRefused(f"its limit_type is {_brief(named)}, and its limits are {key}")
        found[limit_type] = _by_tres(key, values)
    return found


def _by_tres(key: str, values: Any) -> dict[str, int]:
    if not isinstance(values, Mapping) or not all(isinstance(tres, str) and tres for tres in values):
        raise PlanRefused(f"its {key} are no object of numbers by TRES")
    if len(values) > TRES_AT_MOST:
        raise PlanRefused(f"its {key} name {len(values)} TRES; more than {TRES_AT_MOST} cannot be right")
    twice = [tres for tres, times in Counter(map(str.lower, values)).items() if times > 1]
    if twice:
        raise PlanRefused(f"its {key} name {_brief(twice[0])} twice, in capitals and without")
    return {tres: _number(f"{key} {tres}", value, LIMIT_AT_MOST) for tres, value in values.items()}


def _number(what: str, value: Any, at_most: int) -> int:
    """A whole number, as JSON number or text: newer servers write decimals."""
    try:
        if isinstance(value, str) and NUMBER.fullmatch(value.strip()):
            number = Decimal(value.strip())
        elif isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError
        else:
            number = Decimal(value)
        if not 0 <= number <= at_most or number != int(number):
            raise ValueError
    except (ValueError, ArithmeticError) as error:
        raise PlanRefused(
            f"its {what} is {_brief(value)}: a whole number from 0 to {at_most} is needed"
        ) from error
    return int(number)


def _brief(value: Any) -> str:
    return repr(value)[:60]
