# SPDX-License-Identifier: Apache-2.0
"""A conformance kit for drivers: it checks the behaviour that the agent relies on.

Checks run on simulated hosts. Those that only discover, attach and detach can also run on a real
host.
"""

from cyborg.sim.conformance.attach_checks import ATTACH_CHECKS
from cyborg.sim.conformance.cleaning_checks import CLEANING_CHECKS
from cyborg.sim.conformance.default_hosts import default_host
from cyborg.sim.conformance.discovery_checks import DISCOVERY_CHECKS
from cyborg.sim.conformance.failure_checks import FAILURE_CHECKS
from cyborg.sim.conformance.programming_checks import PROGRAMMING_CHECKS
from cyborg.sim.conformance.samples import Sample, sample
from cyborg.sim.conformance.testbed import (
    MakeDriver,
    Result,
    Testbed,
    by_name,
    on_real_host,
    on_simulated_host,
    run,
)

#: All checks, in the order in which they run.
CHECKS = (*DISCOVERY_CHECKS, *ATTACH_CHECKS, *CLEANING_CHECKS, *PROGRAMMING_CHECKS, *FAILURE_CHECKS)

__all__ = [
    'CHECKS',
    'CLEANING_CHECKS',
    'DISCOVERY_CHECKS',
    'PROGRAMMING_CHECKS',
    'ATTACH_CHECKS',
    'FAILURE_CHECKS',
    'Testbed',
    'MakeDriver',
    'Result',
    'Sample',
    'by_name',
    'default_host',
    'on_real_host',
    'run',
    'sample',
    'on_simulated_host',
]
