# SPDX-License-Identifier: MIT
"""Changes from outside the API, for experiments: in this process and over HTTP."""
