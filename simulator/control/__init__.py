# SPDX-License-Identifier: MIT
"""The hand of the experimenter: changes from outside the API, in this process and over HTTP."""
