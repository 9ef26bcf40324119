# SPDX-License-Identifier: MIT
"""The Celery side: the application, thin tasks, their queue and the scheduler. `celery -A tasks worker|beat|flower`
finds the application in `tasks.celery`; commands that only ask the broker import no Celery.
"""
