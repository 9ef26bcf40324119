# SPDX-License-Identifier: MIT
"""Events of the simulated server: what changed, and how it is published to brokers."""
