# SPDX-License-Identifier: Apache-2.0
"""NVMe disks that go to guests whole, or by their virtual functions; never one the host uses."""

from collections.abc import Iterable

from cyborg import objects
from cyborg.accelerator import host_use, pci

CLASS = '0108'
LONGEST = 64  #: of what a disk says about itself


def model(vendor: str, maker: str, *devices: str) -> pci.Model:
    """All disks of a maker, or those with these device ids."""
    return pci.Model(vendor, devices or pci.ANY, f'{maker} NVMe', 'CUSTOM_SSD',
                     (f'CUSTOM_SSD_{maker}', 'CUSTOM_SSD_PRODUCT_ID_{device}'), classes=(CLASS,))


class Driver(pci.Driver):
    """A driver of disks is a name and a catalogue."""

    type = 'SSD'

    def slice(self, disk: pci.Function, model: pci.Model) -> Iterable[objects.Deployable]:
        # Which namespaces a virtual function reaches is known to the controller alone: those
        # that the host uses through the physical function may be among them.
        for place in dict.fromkeys((disk, *self.places(disk).values())):
            if use := host_use.disk_use(place):
                raise pci.Unusable(
                    f'{place.address} is used by the host: {use}. It is offered once that is '
                    'no longer so.')
        return super().slice(disk, model)

    def health(self, disk: pci.Function) -> str | None:
        for controller in disk.children('nvme/nvme*'):
            if controller.read('state') == 'dead':
                return f'{disk.address} is dead: its controller does not answer. Replace it.'
        return super().health(disk)

    def board_info(self, disk: pci.Function) -> dict[str, str]:
        """What the disk says of itself; nothing while a guest has it."""
        facts = {name: controller.read(name) for controller in disk.children('nvme/nvme*')[:1]
                 for name in ('model', 'serial', 'firmware_rev')}
        return {key: value[:LONGEST] for key, value in facts.items() if value}
