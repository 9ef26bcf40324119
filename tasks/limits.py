# SPDX-License-Identifier: MIT
"""Times that must fit together, in seconds: soft limit < hard limit < lock's life < visibility. The countdowns of
agent.core.retries are below that.
"""

from __future__ import annotations

TASK_SOFT_TIME_LIMIT_S = 240
TASK_TIME_LIMIT_S = 300
# A pass begins no new portion of its work after this; the longest portion fits into what is left.
PASS_BUDGET_S = 150
LOCK_TTL_S = TASK_TIME_LIMIT_S + 30
# Above the hard limit and above the longest countdown, or Redis hands a task out twice.
VISIBILITY_TIMEOUT_S = 900
# A task that was begun so often and never ended has ended its workers.
STARTS_AT_MOST = 5
# In the headers of each message: when it was sent, in seconds since 1970, for the metrics.
QUEUED_AT = "queued_at"
