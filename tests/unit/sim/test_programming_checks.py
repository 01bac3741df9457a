# SPDX-License-Identifier: Apache-2.0
"""Drivers that program badly do not pass the conformance kit."""

import pytest
from oslo_config import cfg

from cyborg import conf as options
from cyborg import errors
from cyborg.accelerator.drivers.inspur_fpga import InspurFpgaDriver
from cyborg.accelerator.drivers.intel_fpga import IntelFpgaDriver
from cyborg.sim import conformance

CARD = {'model': '8086:09c4', 'at': '0000:5e:00.0'}
MANAGED = {'model': '1bd4:0911', 'at': '0000:5e:00.0', 'driver': 'manager', 'fpga_manager': {}}


class LoadsNothing(IntelFpgaDriver):
    def program(self, deployable, image, properties):
        if properties.get('bitstream_type') != 'gbs':
            super().program(deployable, image, properties)


class TakesAnything(IntelFpgaDriver):
    def program(self, deployable, image, properties):
        if properties:
            super().program(deployable, image, properties)


class LoadsFirst(IntelFpgaDriver):
    """And looks at the image afterwards."""

    def program(self, deployable, image, properties):
        super().program(deployable, image, properties)

    def shell(self, card):
        return ('0x1' if self.sysfs.path.joinpath('spoilt').exists() else '0x2'), {}

    def _refusal(self, deployable, why):
        self.sysfs.path.joinpath('spoilt').touch()
        return super()._refusal(deployable, why)


class SaysNothing(IntelFpgaDriver):
    def _refusal(self, deployable, why):
        return errors.DriverFailed(name=self.name, why='no.')


class Undeclared(IntelFpgaDriver):
    runs = ()


class Careless(IntelFpgaDriver):
    def program(self, deployable, image, properties):
        try:
            super().program(deployable, image, properties)
        except errors.DriverFailed as error:
            if 'a guest has it' not in error.faultstring:
                raise


def failures(cls, card=CARD):
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf([], project='cyborg', default_config_files=[], default_config_dirs=[])
    return [
        str(result)
        for result in conformance.run(
            conformance.on_simulated_host(lambda sysfs: cls(conf, sysfs), {'cards': [card]}),
            conformance.PROGRAMMING_CHECKS,
        )
        if result.failure or result.skipped
    ]


@pytest.mark.parametrize(
    ('cls', 'requirement', 'why'),
    [
        (LoadsNothing, 'has the function of its image', 'discovery does not show'),
        (TakesAnything, 'An image that is refused', 'accepted an image that does not fit'),
        (LoadsFirst, 'An image that is refused', 'differs after an image was refused'),
        (SaysNothing, 'An image that is refused', 'does not name'),
        (Undeclared, 'only commands that the driver declares', 'it runs fpgaconf -B 0x5e'),
        (Careless, 'A region that a guest uses', 'was programmed while a guest used it'),
    ],
)
def test_a_requirement_that_is_not_met_is_found(cls, requirement, why):
    assert any(requirement in each and why in each for each in failures(cls)), failures(cls)


@pytest.mark.parametrize(('cls', 'card'), [(IntelFpgaDriver, CARD), (InspurFpgaDriver, MANAGED)])
def test_one_that_keeps_them_passes(cls, card):
    assert failures(cls, card) == []
