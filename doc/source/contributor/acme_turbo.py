# SPDX-License-Identifier: Apache-2.0
"""Acme Turbo cards, shared between guests as mediated devices."""

from collections.abc import Iterator

from cyborg import objects
from cyborg.accelerator import mdev, pci

KIND = 'acme-quarter'


class AcmeTurboDriver(pci.Driver):
    name = 'acme_turbo_driver'
    type = 'AICHIP'
    writes = mdev.WRITES
    runs = mdev.RUNS
    catalogue = (
        pci.Model('1234', '5678', 'Acme Turbo', 'CUSTOM_NPU', ('CUSTOM_ACME_5678',)),
        pci.Model('1234', ('5679', '567a'), 'Acme Turbo XL', 'CUSTOM_NPU'),
    )

    def slice(self, card: pci.Function, model: pci.Model) -> Iterator[objects.Deployable]:
        """One deployable a card, one handle for each quarter of it."""
        kind = mdev.types(card).get(KIND)
        if kind is None:
            raise pci.Unusable(
                f'{card.address} is not shared: load the module acme with shared=1.')
        yield self.deployable(card.address, model, [
            objects.AttachHandle(
                key=str(number), type=objects.HandleType.MDEV, is_host_prepared=True,
                info=card.attach_info | {'asked_type': KIND, 'vgpu_mark': f'{KIND}_{number}'})
            for number in range(kind.max_instances or 0)])

    def attach(self, handle: objects.AttachHandle, work: objects.Task) -> None:
        mdev.create(self.function(handle), KIND, handle.uuid)

    def detach(self, handle: objects.AttachHandle) -> None:
        mdev.remove(self.sysfs, handle.uuid)
