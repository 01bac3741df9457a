# SPDX-License-Identifier: Apache-2.0
"""Acme Turbo cards, shared between guests as mediated devices."""

from collections.abc import Iterator

from oslo_config import cfg

from cyborg import errors, objects
from cyborg.accelerator import cleaning, mdev, pci

WIPE = cleaning.Step('wipe', objects.Cleaning.FULL, 'the tool acme-wipe')


class AcmeTurboDriver(pci.Driver):
    name = 'acme_turbo_driver'
    type = 'AICHIP'
    options = (
        cfg.StrOpt('mdev_type', default='acme-quarter', help='Type of the mediated devices.'),
        pci.resource_class_option('CUSTOM_NPU'),
    )
    subsystems = (*pci.SUBSYSTEMS, *mdev.SUBSYSTEMS, 'acme')
    writes = (*mdev.WRITES, 'acme/power_limit')
    runs = (*mdev.RUNS, 'acme-wipe --free ????:??:??.?')
    clean_steps = (*pci.Driver.clean_steps, WIPE)
    catalogue = (
        pci.Model('1234', '5678', 'Acme Turbo', 'CUSTOM_NPU', ('CUSTOM_ACME_5678',)),
        pci.Model('1234', ('5679', '567a'), 'Acme Turbo XL', 'CUSTOM_NPU'),
    )

    def slice(self, card: pci.Function, model: pci.Model) -> Iterator[objects.Deployable]:
        """Yields one deployable for a card, with one handle for each part of it."""
        name = self.conf.acme_turbo_driver.mdev_type
        kind = mdev.types(card).get(name)
        if kind is None:
            raise pci.Unusable(f'{card.address} is not shared: load the module acme with shared=1.')
        yield self.deployable(
            card.address,
            model,
            [
                objects.AttachHandle(
                    key=str(number),
                    type=objects.HandleType.MDEV,
                    is_host_prepared=True,
                    info=card.attach_info | {'asked_type': name, 'vgpu_mark': f'{name}_{number}'},
                )
                for number in range(kind.max_instances or 0)
            ],
        )

    def attach(self, handle: objects.AttachHandle, task: objects.Task) -> None:
        mdev.create(self.function(handle), handle.info['asked_type'], handle.uuid)

    def detach(self, handle: objects.AttachHandle) -> None:
        mdev.remove(self.sysfs, handle.uuid)

    def steps_for(self, handle: objects.AttachHandle) -> tuple[cleaning.Step, ...]:
        return (cleaning.REMOVE, WIPE)

    def clean(self, handle: objects.AttachHandle, step: str, deployable: str) -> None:
        """Remove the mediated device, then erase the memory that no guest uses."""
        if step != WIPE.name:
            super().clean(handle, step, deployable)
            return
        card = self.function(handle)
        try:
            card.write('acme/power_limit', 'none')
            self.sysfs.run('acme-wipe', '--free', card.address)
        except OSError as error:
            raise errors.DriverFailed(name=self.name, why=f'{error}') from error
