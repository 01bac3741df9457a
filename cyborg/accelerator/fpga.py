# SPDX-License-Identifier: Apache-2.0
"""FPGAs: a card that holds regions, each scheduled by itself, and what is in these."""

import abc
import dataclasses
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from oslo_config import cfg

from cyborg import errors, objects
from cyborg.accelerator import pci, traits
from cyborg.accelerator.sysfs import Node, Sysfs

Facts = Mapping[str, str]
#: What a region shows that is programmed with nothing.
NO_FUNCTION = str(uuid.UUID(int=0))
#: Not ids of anything: nothing, and what every read of a card that no longer answers gives.
NO_IDS = frozenset({NO_FUNCTION, str(uuid.UUID(int=2 ** 128 - 1))})


@dataclasses.dataclass(frozen=True)
class Region:
    """A part of a card that is programmed on its own."""

    number: int
    place: pci.Function  #: through which a guest reaches it
    types: tuple[str, ...] = ()  #: which images fit, by uuid
    #: what it is programmed with, by uuid; NO_FUNCTION if nothing; None if it does not tell
    function: str | None = None
    bitstream: str | None = None  #: the image that made it that, if the card tells
    kpis: Facts = dataclasses.field(default_factory=dict)  #: what the card tells of that
    is_programmable: bool = False  #: the driver can load images into it


class Driver(pci.Driver):
    """A deployable for the card, which only holds others, and one for each region."""

    type = 'FPGA'
    #: as in traits
    maker: ClassVar[str]

    def __init__(self, conf: cfg.ConfigOpts, sysfs: Sysfs) -> None:
        super().__init__(conf, sysfs)
        self._kpis = _configured_kpis(conf)

    @abc.abstractmethod
    def regions(self, card: pci.Function) -> Iterable[Region]:
        """What the card is divided into; Unusable if it cannot be given out as it is."""

    def shell(self, card: pci.Function) -> tuple[str | None, Facts]:
        """What surrounds the regions: its id, and what else is known of it."""
        return None, {}

    def slice(self, card: pci.Function, model: pci.Model) -> Iterator[objects.Deployable]:
        regions = list(self.regions(card))
        shell, facts = self.shell(card)
        yield self.deployable(
            card.address, model, [],
            attributes=[attribute('shell_id', shell, facts)] if shell else [])
        for region in regions:
            deployable = self._deployable(card, model, region)
            content = {'function': region.function, 'shell': shell}
            deployable.content = {name: value for name, value in content.items() if value}
            yield deployable

    def board_info(self, card: pci.Function) -> dict[str, str]:
        shell, _ = self.shell(card)
        return {'bitstream_id': shell} if shell else {}

    def deployable(self, name: str, model: pci.Model, handles: list[objects.AttachHandle],
                   *more: str, is_virtual: bool = False,
                   **values: object) -> objects.Deployable:
        return super().deployable(name, model, handles, traits.custom(self.type, self.maker),
                                  *more, is_virtual=is_virtual, **values)

    def _deployable(self, card: pci.Function, model: pci.Model,
                    region: Region) -> objects.Deployable:
        handle = self.passthrough(region.place, 'vf' if region.place.is_virtual else 'pf')
        attributes = [attribute(f'region_type_uuid{number or ""}', each)
                      for number, each in enumerate(region.types)]
        functions = uuids(region.function)
        attributes += [
            attribute('function_uuid', each, {**region.kpis, **self._kpis.get(each, {})})
            for each in functions]
        return self.deployable(
            f'{card.address}_region{region.number}', model, [handle],
            *self._traits('REGION', region.types, legacy='REGION'),
            *self._traits('FUNCTION', functions, legacy='FUNCTION_ID'),
            parent_name=card.address, bitstream_id=region.bitstream,
            is_programmable=region.is_programmable, attributes=attributes)

    def _traits(self, noun: str, uuids: Iterable[str], legacy: str) -> Iterator[str]:
        for each in uuids:
            yield traits.custom(self.type, self.maker, noun, each)
            if self.conf.agent.legacy_traits:
                yield traits.custom(self.type, legacy, self.maker, each.replace('-', ''))


def attribute(key: str, value: str, facts: Facts | None = None) -> objects.Attribute:
    """A fact, with what is known of it in particular below."""
    return objects.Attribute(key=key, value=value, children=[
        objects.Attribute(key=name, value=text) for name, text in sorted((facts or {}).items())])


def text(card: Node, patterns: Iterable[str]) -> str | None:
    """The first text that one of the patterns leads to."""
    found = (node.read() for pattern in patterns for node in card.children(pattern))
    return next(filter(None, found), None)


def uuids(words: str | None) -> tuple[str, ...]:
    """The uuids of a text, with or without dashes; what is none is left out."""
    found = filter(None, map(_uuid, (words or '').split()))
    return tuple(each for each in dict.fromkeys(found) if each not in NO_IDS)


def function(words: str | None) -> str | None:
    """What a region is programmed with, as in Region.function."""
    found = _uuid((words or '').strip())
    return found if found == NO_FUNCTION else next(iter(uuids(found)), None)


def _uuid(word: str) -> str | None:
    try:
        return str(uuid.UUID(word))
    except ValueError:
        return None


def _configured_kpis(conf: cfg.ConfigOpts) -> dict[str, dict[str, str]]:
    """What operators know of functions: by uuid."""
    known: dict[str, dict[str, str]] = {}
    for line in conf.fpga.function_kpis:
        name, _, rest = line.partition(':')
        pairs = [pair.partition('=') for pair in rest.split(',')]
        if len(uuids(name)) != 1 or not all(key.strip() and value for key, _, value in pairs):
            raise errors.ConfigError(
                why=f'[fpga] function_kpis has {line}, which is not like '
                    'd8424dc4-a4a3-c413-f89e-433683f9040b:throughput_gbps=40,latency_us=3')
        known.setdefault(uuids(name)[0], {}).update(
            {key.strip(): value.strip() for key, _, value in pairs})
    return known
