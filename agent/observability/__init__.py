# SPDX-License-Identifier: MIT
"""Log lines, metrics, and reports to Sentry and Elastic APM."""
