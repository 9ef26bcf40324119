# SPDX-License-Identifier: MIT
"""The queue of tasks: the work queue and the stores of its records, broker and transports, the consumer, inspection."""
