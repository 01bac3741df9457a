# SPDX-License-Identifier: Apache-2.0
"""Devices that do not exist, for tests of a cloud without accelerators."""

from collections.abc import Iterator

from oslo_config import cfg

from cyborg import objects
from cyborg.accelerator import driver

FIRST_BUS = 0x0C
RESOURCE_CLASS = 'FPGA'
TRAIT = 'CUSTOM_FAKE_DEVICE'


class FakeDriver(driver.Driver):
    """Reports handles of a type that Nova accepts without giving the guest a device."""

    name = 'fake_driver'
    type = 'FPGA'
    options = (
        cfg.IntOpt('devices', default=1, min=0, max=256, help='Number of devices.'),
        cfg.IntOpt(
            'accelerators',
            default=16,
            min=1,
            max=255,
            help='Number of guests that can share each device.',
        ),
    )

    def discover(self) -> Iterator[objects.Device]:
        for number in range(self.conf.fake_driver.devices):
            yield self._device(number)

    def _device(self, number: int) -> objects.Device:
        key = f'FakeDevice{number or ""}'
        bus = f'{(FIRST_BUS + number) % 256:02x}'
        handles = [self._handle(bus, n) for n in range(self.conf.fake_driver.accelerators)]
        return objects.Device(
            key=key,
            type=self.type,
            vendor='0xABCD',
            driver_name=self.name,
            control_paths=[
                objects.ControlPath(
                    type='PCI', info={'domain': '0000', 'bus': bus, 'device': '00', 'function': '0'}
                )
            ],
            deployables=[
                objects.Deployable(
                    name=key,
                    driver_name='fake',
                    resource_class=RESOURCE_CLASS,
                    traits=[TRAIT],
                    num_accelerators=len(handles),
                    attach_handles=handles,
                    attributes=[
                        objects.Attribute(key='traits1', value=TRAIT),
                        objects.Attribute(key='rc', value=RESOURCE_CLASS),
                    ],
                )
            ],
        )

    @staticmethod
    def _handle(bus: str, number: int) -> objects.AttachHandle:
        device, function = divmod(number + 1, 8)  # 0.0 is the control path
        return objects.AttachHandle(
            key=str(number),
            type=objects.HandleType.TEST_PCI,
            info={'domain': '0000', 'bus': bus, 'device': f'{device:x}', 'function': str(function)},
        )
