# SPDX-License-Identifier: Apache-2.0
"""NVMe disks that go to guests whole, or by their virtual functions; never one the host uses."""

from collections.abc import Iterable, Iterator, Sequence

from cyborg import objects
from cyborg.accelerator import cleaning, host_use, nvme_erase, pci

CLASS = '0108'
LONGEST = 64  #: of what a disk says about itself


def model(vendor: str, maker: str, *devices: str) -> pci.Model:
    """All disks of a maker, or those with these device ids."""
    return pci.Model(vendor, devices or pci.ANY, f'{maker} NVMe', 'CUSTOM_SSD',
                     (f'CUSTOM_SSD_{maker}', 'CUSTOM_SSD_PRODUCT_ID_{device}'), classes=(CLASS,))


class Driver(pci.Driver):
    """A driver of disks is a name and a catalogue."""

    type = 'SSD'
    writes = ('driver_override',)
    runs = nvme_erase.RUNS
    clean_steps = (cleaning.RESET, cleaning.FORMAT, cleaning.VERIFY)

    def slice(self, disk: pci.Function, model: pci.Model) -> Iterable[objects.Deployable]:
        # Which namespaces a virtual function reaches is known to the controller alone: those
        # that the host uses through the physical function may be among them.
        for place in dict.fromkeys((disk, *self.places(disk).values())):
            if use := host_use.disk_use(place):
                raise pci.Unusable(
                    f'{place.address} is used by the host: {use}. It is offered once that is '
                    'no longer so.')
        return super().slice(disk, model)

    def clean(self, handle: objects.AttachHandle, step: str, deployable: str) -> None:
        if step != cleaning.FORMAT.name:
            super().clean(handle, step, deployable)
            return
        disk = self.function(handle)
        cleaning.require_free(disk)
        with nvme_erase.bound_to_nvme(disk):
            self.require_unused(disk)
            nvme_erase.erase(disk, self.conf.cleaning.nvme_erase,
                             self.conf.cleaning.step_timeout)

    def host_use(self, function: pci.Function) -> str | None:
        return host_use.reached_disk_use(function, counts_partitions=False)

    def may_run(self, command: Sequence[str]) -> bool:
        """On disks of its own that the host does not use."""
        return super().may_run(command) and command[2] in self._device_files()

    def _device_files(self) -> Iterator[str]:
        for function in pci.functions(self.sysfs):
            if (self.claims(function) and not self.is_kept_for_host(function)
                    and not self.host_use(function)):
                for node in (*nvme_erase.controllers(function), *host_use.disks(function)):
                    yield f'/dev/{node.name}'

    def versions(self, handle: objects.AttachHandle) -> dict[str, str]:
        facts = self.board_info(self.function(handle))
        firmware = {'firmware': facts['firmware_rev']} if 'firmware_rev' in facts else {}
        return super().versions(handle) | firmware

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
