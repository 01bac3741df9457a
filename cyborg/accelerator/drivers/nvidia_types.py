# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's vGPU types: which the operator chose for which card, and what their names tell."""

import dataclasses
import re

from oslo_config import cfg

from cyborg import errors
from cyborg.accelerator import pci

PREFIX = 'nvidia-'
#: A100-4C, T4-2B: so many gigabytes each. A100-1-5C: of a GPU instance of so many slices.
NAME = re.compile(r'.+?(?P<slices>-\d{1,2})?-(?P<size>\d{1,4})[A-Z]+\d*')
#: Gigabytes, as the names of types count them, of cards that do not tell what they hold.
MEMORY = {
    '20b0': 40, '20b1': 40, '20b2': 80, '20b5': 80, '20f1': 40, '20b7': 24, '2235': 48,
    '2236': 24, '25b6': 16, '26b5': 48, '26b9': 48, '26ba': 48, '27b8': 24, '2330': 80,
    '2331': 80, '2335': 141, '233b': 141, '2bb5': 96,
}
OPTIONS = [
    cfg.ListOpt('device_addresses', default=[], help='The cards that offer it.'),
    cfg.IntOpt('max_instances', min=1,
               help='The most that one of these cards may hold. Unset: what the card can.'),
    cfg.ListOpt('gpu_instance_ids', default=[],
                help='For a type backed by MIG on cards without mediated devices: the ids of '
                     'the GPU instances that hold one each, as nvidia-smi mig -lgi shows them.'),
]


@dataclasses.dataclass(frozen=True)
class Choice:
    """A type as the operator set it up."""

    kind: str  #: nvidia-35, or 35
    max_instances: int | None
    gpu_instances: tuple[str, ...]

    @property
    def number(self) -> str:
        return self.kind.removeprefix(PREFIX)

    @property
    def directory(self) -> str:
        """What the type is called where devices are mediated."""
        return PREFIX + self.number

    def ceiling(self, most: int | None) -> int | None:
        """The most that a card may hold, which itself can hold so many."""
        limits = [limit for limit in (self.max_instances, most) if limit is not None]
        return min(limits, default=None)


def short(title: str) -> str:
    """T4-2B of GRID T4-2B."""
    return title.split()[-1]


def is_sliced(title: str | None) -> bool:
    """Is it backed by a GPU instance (MIG)?"""
    name = NAME.fullmatch(short(title)) if title else None
    return bool(name and name['slices'])


def most(title: str, device: str) -> int | None:
    """How many of a type fit into a card, by what its name tells; None if that is nothing."""
    name = NAME.fullmatch(short(title))
    if name is None or not int(name['size']) or device not in MEMORY:
        return None
    return MEMORY[device] // int(name['size'])


def choices(conf: cfg.ConfigOpts) -> dict[str, Choice]:
    """By the card's address; pci.ANY where one type is for all cards."""
    kinds = list(dict.fromkeys(conf.gpu_devices.enabled_vgpu_types))
    chosen: dict[str, Choice] = {}
    for kind in kinds:
        group = f'vgpu_{kind}'
        conf.register_opts(OPTIONS, group=group)
        addresses = [each.lower() for each in conf[group].device_addresses]
        if not addresses and len(kinds) > 1:
            raise errors.ConfigError(
                why=f'With more than one type in [gpu_devices] enabled_vgpu_types, [{group}] '
                    'device_addresses must say which cards offer it.')
        choice = Choice(kind, conf[group].max_instances, tuple(conf[group].gpu_instance_ids))
        if not all(each.isdecimal() for each in choice.gpu_instances):
            raise errors.ConfigError(why=f'[{group}] gpu_instance_ids are numbers.')
        for address in addresses or [pci.ANY]:
            if address != pci.ANY and not pci.ADDRESS.fullmatch(address):
                raise errors.ConfigError(
                    why=f'[{group}] device_addresses has {address}, which is no PCI address '
                        'like 0000:3b:00.0.')
            if chosen.setdefault(address, choice) != choice:
                raise errors.ConfigError(
                    why=f'{address} is in the device_addresses of both {chosen[address].kind} '
                        f'and {kind}; a card offers one type.')
    return chosen
