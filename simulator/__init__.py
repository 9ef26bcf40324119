# SPDX-License-Identifier: MIT
"""A simulated Waldur: the REST API that a site agent uses, held in memory, with faults on demand; and the demo.

Start it with `simulator.server.waldur.SimulatedWaldur`; describe its content with `simulator.world.seed.Scenario`.
Nothing of the running system imports this package.
"""
