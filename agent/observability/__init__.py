# SPDX-License-Identifier: MIT
"""How the agent speaks of itself: log lines, and reports of errors to Sentry."""
