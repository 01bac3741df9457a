# SPDX-License-Identifier: Apache-2.0
"""Intel's accelerators of data movement (DSA) and of analytics (IAA), given out whole."""

from collections.abc import Iterable

from cyborg import objects
from cyborg.accelerator import pci


def _model(product: str, *devices: str) -> pci.Model:
    return pci.Model(
        '8086',
        devices,
        f'Intel {product}',
        f'CUSTOM_{product}',
        ('CUSTOM_INTEL_{device}',),
        classes=('0880',),
    )


class IntelDsaDriver(pci.Driver):
    """The host shares a card by work queues. A card with an enabled queue is kept for the host."""

    name = 'intel_dsa_driver'
    type = 'DSA'
    subsystems = (*pci.SUBSYSTEMS, 'dsa')
    options = (
        pci.resource_class_option(
            'CUSTOM_DSA', 'dsa_resource_class', 'Resource class of DSA devices in Placement.'
        ),
        pci.resource_class_option(
            'CUSTOM_IAA', 'iaa_resource_class', 'Resource class of IAA devices in Placement.'
        ),
    )
    catalogue = (
        _model('DSA', '0b25', '11fb', '1212'),
        _model('IAA', '0cfe', '1216'),
    )

    def slice(self, card: pci.Function, model: pci.Model) -> Iterable[objects.Deployable]:
        if use := self.host_usage(card):
            raise pci.Unusable(
                f'{card.address} is used by the host: {use}. Disable it with accel-config to '
                'have the card offered.'
            )
        return super().slice(card, model)

    def host_usage(self, function: pci.Function) -> str | None:
        for queue in function.children('*/wq*'):
            if queue.read('state') == 'enabled':
                return f'its work queue {queue.name} is enabled'
        return None

    def resource_class(self, model: pci.Model, is_virtual: bool = False) -> str:
        kind = model.resource_class.removeprefix('CUSTOM_').lower()
        return self._option(f'{kind}_resource_class') or model.resource_class

    def health(self, card: pci.Function) -> str | None:
        for engine in card.children('dsa*') + card.children('iax*'):
            if engine.read('state') == 'halted':
                return f'{card.address} has halted: reset it.'
        return super().health(card)
