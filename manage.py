#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
from agent.cli.main import main

if __name__ == "__main__":
    main()
