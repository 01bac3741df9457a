# SPDX-License-Identifier: Apache-2.0
"""Cards that keep precise time (HPTS): a PTP clock disciplined by satellites."""

from collections.abc import Iterable

from oslo_config import cfg

from cyborg import objects
from cyborg.accelerator import host_usage, pci

#: All of these cards have a receiver.
GNSS = 'CUSTOM_HPTS_GNSS'
LONGEST = 64  #: characters of a fact that the card reports


def _model(vendor: str, device: str, product: str) -> pci.Model:
    return pci.Model(vendor, device, product, 'CUSTOM_HPTS', (GNSS,))


class TimeSyncDriver(pci.Driver):
    """Gives out whole cards. The clock of a network card does not count, because a guest cannot
    get it without the network card."""

    name = 'time_sync_driver'
    type = 'HPTS'
    subsystems = (*pci.SUBSYSTEMS, 'ptp', 'timecard')
    options = (
        pci.resource_class_option('CUSTOM_HPTS'),
        cfg.ListOpt(
            'host_addresses',
            default=[],
            help='PCI addresses (0000:85:00.0) of cards that keep the time of the host and are '
            'not given to guests.',
        ),
    )
    catalogue = (
        _model('1d9b', '0400', 'Meta Time Card'),
        _model('18d4', '1008', 'Celestica Time Card'),
        _model('1ad7', 'a000', 'Orolia ART Card'),
        _model('ad5a', '0400', 'ADVA Time Card'),
    )

    def host_usage(self, function: pci.Function) -> str | None:
        return host_usage.clock_use(function)

    def slice(self, card: pci.Function, model: pci.Model) -> Iterable[objects.Deployable]:
        if use := self.host_usage(card):
            raise pci.Unusable(
                f'{card.address} is used by the host: {use}. It is offered when the host no '
                'longer uses it.'
            )
        return super().slice(card, model)

    def board_info(self, card: pci.Function) -> dict[str, str]:
        """Returns what the kernel's driver of the card reports; nothing while a guest has the
        card."""
        facts = {}
        for clock in card.children('timecard/ocp*')[:1]:
            facts['serial'] = clock.read('serialnum')
            # the state LOST is followed by the time when it began
            facts['gnss'] = (clock.read('gnss_sync') or '').partition(' ')[0]
        return {key: value[:LONGEST] for key, value in facts.items() if value}
