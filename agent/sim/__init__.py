# SPDX-License-Identifier: MIT
"""A simulated Waldur: the REST API an HPC site agent uses, held in memory, with faults on demand.

Start it with `agent.sim.server.SimulatedWaldur`; describe its content with `agent.sim.seed.Scenario`.
"""
