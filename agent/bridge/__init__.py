# SPDX-License-Identifier: MIT
"""MQTT and STOMP in, jobs out: listens to Waldur's brokers and does no work itself. Knows no Celery: it is handed
an `Outbox` that queues jobs.
"""
