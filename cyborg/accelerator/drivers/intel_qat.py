# SPDX-License-Identifier: Apache-2.0
"""Intel QuickAssist: compression and cryptography. A guest gets a virtual function."""

from collections.abc import Iterable

from cyborg import objects
from cyborg.accelerator import pci, traits


def _model(product: str, device: str) -> pci.Model:
    return pci.Model('8086', device, f'Intel {product}', 'CUSTOM_QAT', ('CUSTOM_QAT_{device}',))


class IntelQatDriver(pci.Driver):
    """Gives out virtual functions, with traits of the services that the card is set up for."""

    name = 'intel_qat_driver'
    type = 'QAT'
    options = (pci.resource_class_option('CUSTOM_QAT'), pci.WHOLE_CARDS)
    catalogue = (
        _model('DH895xCC', '0435'),
        _model('C62x', '37c8'),
        _model('C3xxx', '19e2'),
        _model('D15xx', '6f54'),
        _model('200xx', '18ee'),
        _model('C4xxx', '18a0'),
        _model('4xxx', '4940'),
        _model('401xx', '4942'),
        _model('402xx', '4944'),
        _model('420xx', '4946'),
        _model('6xxx', '4948'),
    )

    def slice(self, function: pci.Function, model: pci.Model) -> Iterable[objects.Deployable]:
        for deployable in super().slice(function, model):
            deployable.traits.extend(self._services(function))
            yield deployable

    def health(self, function: pci.Function) -> str | None:
        if function.read('qat/state') == 'down':
            return f'{function.address} is down: write up to its qat/state.'
        return super().health(function)

    @staticmethod
    def _services(function: pci.Function) -> list[str]:
        """Returns the traits of the services. From the fourth generation on, a card offers only
        the services that it is set up for."""
        words = (function.read('qat/cfg_services') or '').split(';')
        return [traits.custom('QAT', word) for word in sorted(filter(str.isalnum, words))]
