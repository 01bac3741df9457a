# SPDX-License-Identifier: Apache-2.0
"""The list of PCI functions in [pci] passthrough_whitelist: JSON in the format of Nova."""

import dataclasses
import fnmatch
import json
import re
from collections.abc import Iterable
from typing import Any

from cyborg import errors
from cyborg.accelerator import traits
from cyborg.accelerator.pci import Function

ID = re.compile('[0-9a-f]{4}')
#: Part of an address in Nova's format -> the same part in ``attach_info``.
PARTS = {'domain': 'domain', 'bus': 'bus', 'slot': 'device', 'function': 'function'}
ADDRESS = re.compile(
    r'(?:(?P<domain>[^:]*):)?(?P<bus>[^:]*):(?P<slot>[^:.]*)(?:\.(?P<function>.*))?'
)
#: Keys of Nova's format that have no meaning here.
IGNORED = frozenset({'managed', 'live_migratable', 'one_time_use', 'remote_managed', 'trusted'})


@dataclasses.dataclass(frozen=True)
class Spec:
    """An entry of the list. A field that is None or empty fits every function."""

    vendor: str | None = None
    device: str | None = None
    #: part of an address, and the pattern that it must match
    address: tuple[tuple[str, re.Pattern[str]], ...] = ()
    interface: str | None = None
    physical_network: str | None = None
    resource_class: str | None = None
    traits: tuple[str, ...] = ()

    def fits(self, function: Function) -> bool:
        place = function.attach_info
        return (
            self.vendor in (None, function.vendor)
            and self.device in (None, function.device)
            and all(pattern.fullmatch(place.get(part, '')) for part, pattern in self.address)
            and (self.interface is None or function.has(f'net/{self.interface}'))
        )


def read(lines: Iterable[str]) -> list[Spec]:
    """Returns the entries of the option. Raises ConfigError if one cannot be understood."""
    specs = []
    for line in lines:
        try:
            facts = json.loads(line)
            specs += [_spec(each) for each in (facts if isinstance(facts, list) else [facts])]
        except (ValueError, TypeError, re.error) as error:
            raise errors.ConfigError(
                why=f'[pci] passthrough_whitelist has {line}, which is not understood: {error}.'
            ) from error
    return specs


def _spec(facts: Any) -> Spec:
    if not isinstance(facts, dict):
        raise ValueError('an entry must be an object')
    facts = {key: value for key, value in facts.items() if key not in IGNORED}
    address, names = facts.pop('address', None), facts.pop('traits', ())
    found = {
        key: facts.pop(key, None)
        for key in ('vendor_id', 'product_id', 'devname', 'physical_network', 'resource_class')
    }
    if facts:
        raise ValueError(f'unknown keys: {", ".join(sorted(facts))}')
    if wrong := [key for key, value in found.items() if not isinstance(value, str | None)]:
        raise ValueError(f'{wrong[0]} must be a string')
    if address is not None and found['devname']:
        raise ValueError('address and devname exclude one another')
    return Spec(
        _id(found['vendor_id']),
        _id(found['product_id']),
        _place(address),
        found['devname'],
        found['physical_network'],
        found['resource_class'] and traits.resource_class(found['resource_class']),
        tuple(map(_trait, names.split(',') if isinstance(names, str) else names)),
    )


def _trait(name: Any) -> str:
    if not isinstance(name, str):
        raise ValueError('a trait must be a name')
    return traits.trait(name)


def _id(text: str | None) -> str | None:
    if text in (None, '*'):
        return None
    plain = text.lower().removeprefix('0x')
    if not ID.fullmatch(plain):
        raise ValueError(f'{text} is not an id of four hexadecimal digits')
    return plain


def _place(address: Any) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Returns the patterns of an address. It is a text, which may have stars, or an object of
    regular expressions."""
    if address is None:
        return ()
    if isinstance(address, dict):
        if unknown := address.keys() - PARTS.keys():
            raise ValueError(f'unknown parts of an address: {", ".join(sorted(unknown))}')
        return tuple(
            (PARTS[part], re.compile(str(pattern), re.IGNORECASE))
            for part, pattern in address.items()
        )
    parts = ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if parts is None:
        raise ValueError(f'{address} is not an address like 0000:0a:00.* or *:0a:*')
    return tuple(
        (PARTS[part], re.compile(fnmatch.translate(pattern.lower())))
        for part, pattern in parts.groupdict().items()
        if pattern
    )
