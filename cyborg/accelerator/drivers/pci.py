# SPDX-License-Identifier: Apache-2.0
"""PCI functions that the operator lists, passed through as they are."""

from collections.abc import Iterator

from oslo_config import cfg

from cyborg import objects
from cyborg.accelerator import host_usage, pci, traits
from cyborg.accelerator.drivers import pci_specs
from cyborg.accelerator.sysfs import Sysfs


class PciDriver(pci.Driver):
    """Gives out listed virtual functions, and listed cards that have none."""

    name = 'pci_driver'
    type = 'PCI'
    #: also disks and clocks, because the host may begin or cease to use those of a card
    subsystems = (*pci.SUBSYSTEMS, 'nvme', 'ptp')
    options = (pci.WHOLE_CARDS,)
    option_groups = {
        'pci': (
            cfg.MultiStrOpt(
                'passthrough_whitelist',
                default=[],
                help='Functions that pci_driver offers, in the format of Nova: a JSON object, or '
                'a list of such objects, with any of vendor_id, product_id, address (with * for '
                'any value, or an object of regular expressions), devname, physical_network, '
                'resource_class and traits. May be given several times. Example: '
                '{"vendor_id": "1b36", "product_id": "0010", "address": "0000:01:00.*"}',
            ),
        )
    }
    catalogue = ()

    def __init__(self, conf: cfg.ConfigOpts, sysfs: Sysfs) -> None:
        super().__init__(conf, sysfs)
        self._specs = pci_specs.read(conf.pci.passthrough_whitelist)

    def model(self, function: pci.Function) -> pci.Model | None:
        if not self._specs or function.class_code.startswith(pci.BRIDGES):
            return None
        spec = next(
            filter(None, map(self._spec, (function, *function.virtual_functions.values()))), None
        )
        if spec is None:
            return None
        return pci.Model(
            function.vendor,
            function.device,
            f'{function.vendor} {function.device}',
            spec.resource_class or 'CUSTOM_PCI',
            ('CUSTOM_PCI_{vendor}', 'CUSTOM_PCI_PRODUCT_ID_{device}'),
        )

    def slice(self, card: pci.Function, model: pci.Model) -> Iterator[objects.Deployable]:
        places = {
            key: (each, spec)
            for key, each in self.places(card).items()
            if (spec := self._spec(each))
        }
        if not places:
            raise pci.Unusable(
                f'{card.address} has virtual functions, so it cannot be given out whole: list '
                'these in [pci] passthrough_whitelist, or remove them.'
            )
        more = [trait for _, spec in places.values() for trait in spec.traits]
        networks = [
            traits.custom(spec.physical_network)
            for _, spec in places.values()
            if spec.physical_network
        ]
        yield self.deployable(
            card.address,
            model,
            [self._handle(each, key, spec) for key, (each, spec) in places.items()],
            *more,
            *networks,
        )

    def _spec(self, function: pci.Function) -> pci_specs.Spec | None:
        return next((spec for spec in self._specs if spec.fits(function)), None)

    def host_usage(self, function: pci.Function) -> str | None:
        # partitions on the disk may be those of the guest that had it
        return self._host_usage(function, counts_partitions=False)

    @staticmethod
    def _host_usage(function: pci.Function, counts_partitions: bool = True) -> str | None:
        """Returns how the host uses a function. A virtual function may reach the disks that the
        host uses through the physical one."""
        disk = host_usage.reached_disk_use(function, counts_partitions)
        if function.is_virtual:
            return disk
        return disk or host_usage.interface_use(function) or host_usage.clock_use(function)

    def _handle(
        self, function: pci.Function, key: str, spec: pci_specs.Spec
    ) -> objects.AttachHandle:
        if use := self._host_usage(function):
            raise pci.Unusable(f'{function.address} is used by the host: {use}.')
        handle = self.passthrough(function, key)
        if spec.physical_network:
            handle.info = handle.info | {'physical_network': spec.physical_network}
        return handle
