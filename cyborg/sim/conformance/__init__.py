# SPDX-License-Identifier: Apache-2.0
"""A conformance kit for drivers: what the agent relies on, tried one promise at a time.

Most checks have a simulated host of their own, new for each; those that only look, attach and
detach can be run on a real host too.
"""

from cyborg.sim.conformance.bench import (
    Bench,
    MakeDriver,
    Result,
    by_name,
    on_real,
    run,
    simulated,
)
from cyborg.sim.conformance.cleaning import CLEANING
from cyborg.sim.conformance.defaults import default_host
from cyborg.sim.conformance.looking import LOOKING
from cyborg.sim.conformance.programming import PROGRAMMING
from cyborg.sim.conformance.samples import Sample, sample
from cyborg.sim.conformance.serving import SERVING
from cyborg.sim.conformance.suffering import SUFFERING

#: Every check, in the order in which they are best read.
CHECKS = (*LOOKING, *SERVING, *CLEANING, *PROGRAMMING, *SUFFERING)

__all__ = ['CHECKS', 'CLEANING', 'LOOKING', 'PROGRAMMING', 'SERVING', 'SUFFERING', 'Bench',
           'MakeDriver', 'Result', 'Sample', 'by_name', 'default_host', 'on_real', 'run',
           'sample', 'simulated']
