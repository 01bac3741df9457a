# SPDX-License-Identifier: Apache-2.0
"""AMD GPUs, given out whole or by the virtual functions that the host's driver makes."""

from collections.abc import Iterator

from cyborg import objects
from cyborg.accelerator import pci, traits

PARTITIONS = ('current_compute_partition', 'current_memory_partition')
LONGEST = 16  #: SPX, NPS1


def _model(product: str, *devices: str) -> pci.Model:
    return pci.Model(
        '1002', devices, f'AMD {product}', 'PGPU', ('CUSTOM_AMD_{device}',), virtual_class='VGPU'
    )


class AmdGpuDriver(pci.Driver):
    """A partition of a card is not a PCI function. A guest gets it with its PCI function."""

    name = 'amd_gpu_driver'
    type = 'GPU'
    options = (
        pci.resource_class_option('PGPU'),
        pci.virtual_resource_class_option('VGPU'),
        pci.WHOLE_CARDS,
    )
    catalogue = (
        _model('Instinct MI100', '738c', '738e'),
        _model('Instinct MI210', '740f'),
        _model('Instinct MI250', '7408', '740c'),
        _model('Instinct MI300A', '74a0'),
        _model('Instinct MI300X', '74a1'),
        _model('Instinct MI308X', '74a2'),
        _model('Instinct MI325X', '74a5'),
        _model('Radeon PRO V620', '73a1'),
        _model('Radeon PRO V710', '7460'),
        _model('FirePro S7150', '6929'),
        _model('Radeon Instinct MI25', '6860'),
    )

    def slice(self, gpu: pci.Function, model: pci.Model) -> Iterator[objects.Deployable]:
        places = self.places(gpu)
        # virtual functions have another device id, and profiles may ask for that one
        yield self.deployable(
            gpu.address,
            model,
            [self.passthrough(each, key) for key, each in places.items()],
            *(traits.custom('AMD', each.device) for each in places.values() if each.device),
            is_virtual=len(places) > 1,
        )  # the only one is the whole card

    def versions(self, handle: objects.AttachHandle) -> dict[str, str]:
        gpu = self.function(handle).physical
        # only the host's driver amdgpu shows it
        vbios = gpu.read('vbios_version', pci.LONGEST_VERSION) if gpu is not None else None
        return super().versions(handle) | ({'firmware': vbios} if vbios else {})

    def board_info(self, gpu: pci.Function) -> dict[str, str]:
        """Returns how the card is partitioned; nothing if the host's driver is not bound."""
        return {
            name.removeprefix('current_'): text[:LONGEST]
            for name in PARTITIONS
            if (text := gpu.read(name))
        }
