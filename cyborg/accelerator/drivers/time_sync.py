# SPDX-License-Identifier: Apache-2.0
"""Cards that keep precise time (HPTS): a PTP clock disciplined by satellites."""

from collections.abc import Iterable

from cyborg import objects
from cyborg.accelerator import host_use, pci

#: All of them carry a receiver.
GNSS = 'CUSTOM_HPTS_GNSS'
LONGEST = 64  #: of what the card says about itself


def _model(vendor: str, device: str, product: str) -> pci.Model:
    return pci.Model(vendor, device, product, 'CUSTOM_HPTS', (GNSS,))


class TimeSyncDriver(pci.Driver):
    """Whole cards. The clock of a network card is none: it cannot be had without the card."""

    name = 'time_sync_driver'
    type = 'HPTS'
    catalogue = (
        _model('1d9b', '0400', 'Meta Time Card'),
        _model('18d4', '1008', 'Celestica Time Card'),
        _model('1ad7', 'a000', 'Orolia ART Card'),
        _model('ad5a', '0400', 'ADVA Time Card'),
    )

    def host_use(self, function: pci.Function) -> str | None:
        return host_use.clock_use(function)

    def slice(self, card: pci.Function, model: pci.Model) -> Iterable[objects.Deployable]:
        if use := self.host_use(card):
            raise pci.Unusable(
                f'{card.address} is used by the host: {use}. It is offered once that is no '
                'longer so.')
        return super().slice(card, model)

    def board_info(self, card: pci.Function) -> dict[str, str]:
        """What the card's driver tells; nothing while a guest has the card."""
        facts = {}
        for clock in card.children('timecard/ocp*')[:1]:
            facts['serial'] = clock.read('serialnum')
            # LOST comes with the moment it was lost
            facts['gnss'] = (clock.read('gnss_sync') or '').partition(' ')[0]
        return {key: value[:LONGEST] for key, value in facts.items() if value}
