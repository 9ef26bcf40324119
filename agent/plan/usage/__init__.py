# SPDX-License-Identifier: MIT
"""Planning of usage."""
