# SPDX-License-Identifier: Apache-2.0
"""The base class of drivers for NVMe disks. Disks that the host uses are not given out."""

from collections.abc import Iterable, Iterator, Sequence

from oslo_config import cfg

from cyborg import objects
from cyborg.accelerator import cleaning, host_usage, nvme_erase, pci

CLASS = '0108'
LONGEST = 64  #: characters of a fact that a disk reports


def model(vendor: str, maker: str, *devices: str) -> pci.Model:
    """Returns a model for all disks of a maker, or for those with these device ids."""
    return pci.Model(
        vendor,
        devices or pci.ANY,
        f'{maker} NVMe',
        'CUSTOM_SSD',
        (f'CUSTOM_SSD_{maker}', 'CUSTOM_SSD_PRODUCT_ID_{device}'),
        classes=(CLASS,),
    )


class Driver(pci.Driver):
    """A driver for disks needs a name and a catalogue."""

    type = 'SSD'
    subsystems = (*pci.SUBSYSTEMS, 'nvme')
    options = (
        pci.resource_class_option('CUSTOM_SSD'),
        cfg.ListOpt(
            'host_addresses',
            default=[],
            help='PCI addresses (0000:c1:00.0) of disks that are kept for the host although they '
            'are neither mounted nor part of a volume, such as those of a storage service.',
        ),
        pci.WHOLE_CARDS,
    )
    option_groups = {'cleaning': (nvme_erase.OPTION,)}
    writes = ('driver_override',)
    runs = nvme_erase.RUNS
    clean_steps = (cleaning.RESET, cleaning.FORMAT, cleaning.VERIFY)

    def slice(self, disk: pci.Function, model: pci.Model) -> Iterable[objects.Deployable]:
        # Only the controller knows which namespaces a virtual function reaches. Those that the
        # host uses through the physical function may be among them.
        for place in dict.fromkeys((disk, *self.places(disk).values())):
            if use := host_usage.disk_use(place):
                raise pci.Unusable(
                    f'{place.address} is used by the host: {use}. It is offered when the host '
                    'no longer uses it.'
                )
        return super().slice(disk, model)

    def clean(self, handle: objects.AttachHandle, step: str, deployable: str) -> None:
        if step != cleaning.FORMAT.name:
            super().clean(handle, step, deployable)
            return
        disk = self.function(handle)
        cleaning.require_free(disk)
        with nvme_erase.bound_to_nvme(disk):
            self.require_unused(disk)
            nvme_erase.wait_for_namespaces(disk, self.conf.cleaning.nvme_erase)
            self.require_unused(disk)  # the host may use a namespace that was found meanwhile
            nvme_erase.erase(disk, self.conf.cleaning.nvme_erase, self.conf.cleaning.step_timeout)

    def host_usage(self, function: pci.Function) -> str | None:
        return host_usage.reached_disk_use(function, counts_partitions=False)

    def may_run(self, command: Sequence[str]) -> bool:
        """Allows what ``runs`` declares, on disks of this driver that the host does not use."""
        return super().may_run(command) and command[2] in self._device_files()

    def _device_files(self) -> Iterator[str]:
        for function in pci.functions(self.sysfs):
            if (
                self.claims(function)
                and not self.is_kept_for_host(function)
                and not self.host_usage(function)
            ):
                for node in (*nvme_erase.controllers(function), *host_usage.disks(function)):
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
        """Returns what the disk reports; nothing while a guest has it."""
        facts = {
            name: controller.read(name)
            for controller in disk.children('nvme/nvme*')[:1]
            for name in ('model', 'serial', 'firmware_rev')
        }
        return {key: value[:LONGEST] for key, value in facts.items() if value}
