# SPDX-License-Identifier: Apache-2.0
"""Intel network cards that process packets themselves (X710, E810).

Options name the physical network of a card and the function of its package of rules (DDP),
because sysfs does not show them. A card that no option names is kept for the host.
"""

from collections.abc import Iterable, Iterator

from oslo_config import cfg

from cyborg import errors, objects
from cyborg.accelerator import host_usage, pci, traits
from cyborg.accelerator.sysfs import Sysfs

#: of each section that [nic_devices] enabled_nic_types names
TYPE_OPTIONS = [
    cfg.ListOpt(
        'physical_device_mappings',
        default=[],
        help='The cards of each physical network: physnet1:eth2|eth3. A card is named by its '
        'interface or by its PCI address.',
    ),
    cfg.ListOpt(
        'function_device_mappings', default=[], help='The cards of each function: GTPv1:eth3.'
    ),
]


def _model(product: str, *devices: str) -> pci.Model:
    return pci.Model(
        '8086',
        devices,
        f'Intel {product}',
        'CUSTOM_NIC',
        ('CUSTOM_NIC_{device}',),
        classes=('0200',),
    )


class IntelNicDriver(pci.Driver):
    """Gives out the virtual functions of a card, or the card itself if it has none."""

    name = 'intel_nic_driver'
    type = 'NIC'
    subsystems = (*pci.SUBSYSTEMS, 'ptp')
    options = (pci.resource_class_option('CUSTOM_NIC'), pci.WHOLE_CARDS)
    option_groups = {
        'nic_devices': (
            cfg.ListOpt(
                'enabled_nic_types',
                default=[],
                help='Names of sections, such as x710_static. Each section describes a kind of '
                'set-up: its physical_device_mappings and function_device_mappings name the cards '
                'of each physical network and of each function.',
            ),
        )
    }
    catalogue = (
        _model('X710', '1572', '1583', '1584', '158a', '158b'),
        _model('X722', '37d0', '37d1', '37d2', '37d3'),
        _model('E810', '1591', '1592', '1593', '1599', '159a', '159b'),
        _model(
            'E82x',
            *(
                f'{number:04x}'
                for number in (
                    *range(0x124C, 0x1250),
                    *range(0x188A, 0x189B),
                    *range(0x579C, 0x57A0),
                )
            ),
        ),
        _model('E830', *(f'{number:04x}' for number in range(0x12D1, 0x12DF))),
    )

    def __init__(self, conf: cfg.ConfigOpts, sysfs: Sysfs) -> None:
        super().__init__(conf, sysfs)
        self._networks: dict[str, list[str]] = {}
        self._functions: dict[str, list[str]] = {}
        for kind in conf.nic_devices.enabled_nic_types:
            conf.register_opts(TYPE_OPTIONS, group=kind)
            _read(
                self._networks,
                kind,
                'physical_device_mappings',
                conf[kind].physical_device_mappings,
            )
            _read(
                self._functions,
                kind,
                'function_device_mappings',
                conf[kind].function_device_mappings,
            )
        if crowded := [name for name, found in self._networks.items() if len(found) > 1]:
            raise errors.ConfigError(
                why=f'{crowded[0]} is on more than one physical network: '
                f'{", ".join(self._networks[crowded[0]])}.'
            )

    def model(self, function: pci.Function) -> pci.Model | None:
        model = super().model(function)
        named = self._networks.keys() | self._functions.keys()
        return model if model and named.intersection(_names(function)) else None

    def slice(self, card: pci.Function, model: pci.Model) -> Iterator[objects.Deployable]:
        places = self.places(card)
        is_virtual = any(each.is_virtual for each in places.values())
        if not is_virtual:
            self._require_free(card)
        networks, functions = (
            list(dict.fromkeys(each for name in _names(card) for each in known.get(name, ())))
            for known in (self._networks, self._functions)
        )
        handles = [self.passthrough(each, key) for key, each in places.items()]
        for handle, network in zip(handles, networks[:1] * len(handles), strict=False):
            handle.info = handle.info | {'physical_network': network}
        yield self.deployable(
            card.address,
            model,
            handles,
            'CUSTOM_VF' if is_virtual else 'CUSTOM_PF',
            *map(traits.custom, (*functions, *networks)),
        )

    def board_info(self, card: pci.Function) -> dict[str, str]:
        interfaces = [node.name for node in card.children('net/*')]
        return {'interface': interfaces[0]} if interfaces else {}

    def host_usage(self, function: pci.Function) -> str | None:
        if function.is_virtual:
            return None
        return host_usage.interface_use(function) or host_usage.clock_use(function)

    def _require_free(self, card: pci.Function) -> None:
        """Raises Unusable if a card cannot be given out whole: the host uses it, or the options
        name it by its interface, which disappears when a guest gets the card."""
        if use := self.host_usage(card):
            raise pci.Unusable(
                f'{card.address} has no virtual functions and the host uses it: {use}.'
            )
        if card.address not in self._networks.keys() | self._functions.keys():
            raise pci.Unusable(
                f'{card.address} has no virtual functions: make some by writing their number to '
                'its sriov_numvfs, or name it by its address to have it given out whole.'
            )


def _names(card: pci.Function) -> list[str]:
    return [card.address, *(node.name for node in card.children('net/*'))]


def _read(known: dict[str, list[str]], group: str, option: str, entries: Iterable[str]) -> None:
    """Add entries like physnet1:eth2|eth3 to the known ones, by card."""
    for entry in entries:
        name, _, cards = entry.partition(':')
        names = [each.strip() for each in cards.split('|')]
        if not name.strip() or not all(names):
            raise errors.ConfigError(
                why=f'[{group}] {option} has {entry}, which is not like name:eth2|eth3.'
            )
        for each in names:
            known.setdefault(each, []).append(name.strip())
