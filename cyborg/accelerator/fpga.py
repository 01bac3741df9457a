# SPDX-License-Identifier: Apache-2.0
"""The base class of drivers for FPGAs: a card holds regions, and each region is scheduled and
programmed by itself."""

import abc
import dataclasses
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from oslo_config import cfg

from cyborg import errors, objects
from cyborg.accelerator import cleaning, fpga_images, fpga_tools, pci, traits
from cyborg.accelerator.fpga_flash import FlashRecord
from cyborg.accelerator.fpga_tools import Loader
from cyborg.accelerator.sysfs import Node, NotRun, Sysfs

Facts = Mapping[str, str]
#: The function of a region that is not programmed.
NO_FUNCTION = str(uuid.UUID(int=0))
#: Not ids of functions: all zeros, and all ones, which reads of a failed card return.
NO_IDS = frozenset({NO_FUNCTION, str(uuid.UUID(int=2**128 - 1))})
#: Names of deployables: a card, a region of it, a function in a region.
NAME = re.compile('(?P<card>[^_]+)(_region(?P<region>[0-9]{1,4})(_[0-9a-f-]{36})?)?')
#: Directories of the kernel's FPGA managers, below a function.
MANAGERS = ('fpga_manager/fpga*', '*/fpga_manager/fpga*')
#: States of a manager whose last image was not loaded completely.
BROKEN = frozenset(
    f'{step} error'
    for step in ('firmware request', 'parse header', 'write init', 'write', 'write complete')
)
OPTIONS = (
    cfg.MultiStrOpt(
        'function_kpis',
        default=[],
        help='Figures of a function: its uuid, a colon, and pairs. They are shown below the '
        'attribute function_uuid of each region that is programmed with the function. May be '
        'given several times. Example: '
        'd8424dc4-a4a3-c413-f89e-433683f9040b:throughput_gbps=40,latency_us=3',
    ),
    cfg.MultiStrOpt(
        'blank_images',
        default=[],
        help="The image that empties a region: the uuid of the region's type, or the name of a "
        'driver for all regions of its cards, a colon, and the path of a file on the host. '
        'May be given several times. Example: '
        '69528db6-eb31-577a-8c36-68f9faa081f6:/etc/cyborg/blank.gbs',
    ),
    cfg.BoolOpt(
        'flash_cards',
        default=False,
        help='Allow whole cards to be programmed: the image is written to the flash of the card, '
        'which loads it when the host is switched off and on. Until then the device has a '
        'fault.',
    ),
)
GUEST = 'vfio-pci'  #: the driver of a function that a guest has, or is about to get


@dataclasses.dataclass(frozen=True)
class Place:
    """A PCI function through which a guest reaches a region."""

    function: pci.Function
    #: uuid of the function that it reaches; NO_FUNCTION if it reaches none; None if unknown
    content: str | None = None
    key: str = ''  #: key of its handle, if the region has several handles

    @property
    def is_taken(self) -> bool:
        return self.function.driver == GUEST


@dataclasses.dataclass(frozen=True)
class Region:
    """A part of a card that is programmed by itself."""

    number: int
    places: tuple[Place, ...]
    types: tuple[str, ...] = ()  #: uuids of the types of images that fit
    bitstream: str | None = None  #: uuid of the image that is in it, if the card shows it
    kpis: Facts = dataclasses.field(default_factory=dict)  #: figures of its function
    loaders: tuple[Loader, ...] = ()  #: tools that load images into it
    obstacle: str | None = None  #: why no image can be loaded now

    @property
    def functions(self) -> tuple[str, ...]:
        return uuids(' '.join(each.content or '' for each in self.places))

    @property
    def content(self) -> str | None:
        """Returns what is in it, as text to compare; None unless all of it is known."""
        known = [each.content for each in self.places if each.content]
        return ' '.join(known) if len(known) == len(self.places) else None


class Driver(pci.Driver):
    """Reports a deployable for the card, which only holds others, and one for each region.

    A region that guests reach through one PCI function is given out itself. If there are several
    PCI functions, they may reach different functions of the region. Then each of these is a
    deployable below the one of the region.
    """

    type = 'FPGA'
    subsystems = (*pci.SUBSYSTEMS, 'fpga_region', 'fpga')
    option_groups = {'fpga': OPTIONS}
    clean_steps = (cleaning.RESET, cleaning.BLANK, cleaning.VERIFY)
    #: the name of the maker in traits
    maker: ClassVar[str]

    def __init__(self, conf: cfg.ConfigOpts, sysfs: Sysfs) -> None:
        super().__init__(conf, sysfs)
        self._kpis = _configured_kpis(conf)
        self._blank_images = _configured_blanks(conf)
        self._flash = FlashRecord(Path(conf.state_path), sysfs)

    @abc.abstractmethod
    def regions(self, card: pci.Function) -> Iterable[Region]:
        """Returns the regions of a card. Raises Unusable if it cannot be given out as it is."""

    def shell(self, card: pci.Function) -> tuple[str | None, Facts]:
        """Returns the id of the shell, which surrounds the regions, and further facts about it."""
        return None, {}

    def lack(self, card: pci.Function) -> str | None:
        """Returns what the operator must do for a card without a shell, and so without regions;
        None if the card has a shell."""
        return None

    def flash_loaders(self, card: pci.Function) -> tuple[Loader, ...]:
        """Returns the tools that write the flash of a card."""
        return ()

    def slice(self, card: pci.Function, model: pci.Model) -> Iterator[objects.Deployable]:
        shell, facts = self.shell(card)
        yield self.deployable(
            card.address,
            model,
            [],
            is_programmable=bool(self._flash_loaders(card)),
            attributes=[attribute('shell_id', shell, facts)] if shell else [],
        )
        for region in self.regions(card) if not self.lack(card) else ():
            parts = list(self._deployables(card, model, region))
            content = {'function': region.content, 'shell': shell}
            parts[0].content = {name: value for name, value in content.items() if value}
            yield from parts

    def board_info(self, card: pci.Function) -> dict[str, str]:
        shell, _ = self.shell(card)
        return {'bitstream_id': shell} if shell else {}

    def versions(self, handle: objects.AttachHandle) -> dict[str, str]:
        card = self.function(handle).physical
        shell = self.shell(card)[0] if card is not None else None
        return super().versions(handle) | ({'shell': shell} if shell else {})

    def health(self, card: pci.Function) -> str | None:
        return (
            self._flash.pending(card, self.shell(card)[0])
            or self.lack(card)
            or self._broken(card)
            or super().health(card)
        )

    def deployable(
        self,
        name: str,
        model: pci.Model,
        handles: list[objects.AttachHandle],
        *more: str,
        is_virtual: bool = False,
        **values: object,
    ) -> objects.Deployable:
        return super().deployable(
            name,
            model,
            handles,
            traits.custom(self.type, self.maker),
            *more,
            is_virtual=is_virtual,
            **values,
        )

    def _deployables(
        self, card: pci.Function, model: pci.Model, region: Region
    ) -> Iterator[objects.Deployable]:
        """Yields the deployable of the region, then those of the functions in it."""
        name = f'{card.address}_region{region.number}'
        types = [
            attribute(f'region_type_uuid{number or ""}', each)
            for number, each in enumerate(region.types)
        ]
        image = [attribute('bitstream_id', region.bitstream)] if region.bitstream else []
        fits = list(self._traits('REGION', region.types, legacy='REGION'))
        is_shared = len(region.places) > 1 and bool(region.functions)
        # If there are several PCI functions, one that a guest has and whose content was never read
        # belongs to no deployable. A request that holds its handle keeps it.
        free = [
            each
            for each in region.places
            if not is_shared and (len(region.places) == 1 or each.content or not each.is_taken)
        ]
        yield self.deployable(
            name,
            model,
            [self._handle(each) for each in free],
            *fits,
            *(
                []
                if is_shared
                else self._traits('FUNCTION', region.functions, legacy='FUNCTION_ID')
            ),
            parent_name=card.address,
            is_programmable=bool(region.loaders),
            attributes=[
                *types,
                *image,
                *(
                    self._figures(region, each, number)
                    for number, each in enumerate(region.functions)
                ),
            ],
        )
        for each in region.functions if is_shared else ():
            yield self.deployable(
                f'{name}_{each}',
                model,
                [self._handle(place) for place in region.places if place.content == each],
                *fits,
                *self._traits('FUNCTION', [each], legacy='FUNCTION_ID'),
                parent_name=name,
                attributes=[*types, self._figures(region, each)],
            )

    def _handle(self, place: Place) -> objects.AttachHandle:
        return self.passthrough(
            place.function, place.key or ('vf' if place.function.is_virtual else 'pf')
        )

    def _figures(self, region: Region, function: str, number: int = 0) -> objects.Attribute:
        return attribute(
            f'function_uuid{number or ""}',
            function,
            {**region.kpis, **self._kpis.get(function, {})},
        )

    def _traits(self, noun: str, uuids: Iterable[str], legacy: str) -> Iterator[str]:
        for each in uuids:
            yield traits.custom(self.type, self.maker, noun, each)
            if self.conf.agent.legacy_traits:
                yield traits.custom(self.type, legacy, self.maker, each.replace('-', ''))

    # -- cleaning --------------------------------------------------------------------------

    def clean(self, handle: objects.AttachHandle, step: str, deployable: str) -> None:
        if step == cleaning.BLANK.name:
            cleaning.require_free(self.function(handle))
            self.blank(deployable)
        else:
            super().clean(handle, step, deployable)

    # -- programming -----------------------------------------------------------------------

    def program(self, deployable: str, image: Path, properties: Mapping[str, str]) -> None:
        """Load an image. It must be of a kind that a tool for the region takes, and made for the
        type of the region: another image may hang the card."""
        card, region = self._find(deployable)
        try:
            found = fpga_images.read(image, properties)
        except fpga_images.Unfit as error:
            raise self._refusal(deployable, str(error)) from error
        self._load(deployable, card, region, found)

    def _load(
        self, deployable: str, card: pci.Function, region: Region | None, found: fpga_images.Image
    ) -> None:
        loaders = self._flash_loaders(card) if region is None else region.loaders
        loader = next((each for each in loaders if found.kind in each.tool.kinds), None)
        if loader is None:
            kinds = {kind for each in loaders for kind in each.tool.kinds}
            raise self._refusal(
                deployable,
                f'the image is of type {found.kind}, and it takes {fpga_images.names(kinds)}',
            )
        if any(each.driver == GUEST for each in self._parts(card, region)):
            raise self._refusal(deployable, 'a guest has it')
        if region is not None and (why := self._misfit(region, found) or region.obstacle):
            raise self._refusal(deployable, why)
        try:
            self.sysfs.run(*loader.command(found))
        except NotRun as error:
            raise self._refusal(deployable, str(error)) from error
        except OSError as error:
            raise errors.DriverFailed(
                name=self.name, why=_not_programmed(deployable, str(error))
            ) from error
        if loader.tool.is_for_flash:
            self._flash.note(card, self.shell(card)[0])

    def blank(self, deployable: str) -> None:
        """Load the operator's image for an empty region of that type. Raises DriverFailed if there
        is none, because nothing else empties a region."""
        card, region = self._find(deployable)
        if region is None:
            raise self._refusal(deployable, 'only a region can be emptied')
        image = next(
            (
                self._blank_images[each]
                for each in (*region.types, self.name)
                if each in self._blank_images
            ),
            None,
        )
        if image is None:
            known = ', '.join(region.types) or self.name
            raise self._refusal(
                deployable,
                f'only an image empties a region: name one in [fpga] blank_images for {known}',
            )
        name = f'{card.address}_region{region.number}'
        kinds = {kind for each in region.loaders for kind in each.tool.kinds}
        try:
            found = fpga_images.read_local(image, kinds)
        except fpga_images.Unfit as error:
            raise self._refusal(name, str(error)) from error
        self._load(name, card, region, found)

    def may_run(self, command: Sequence[str]) -> bool:
        """Allows what ``runs`` declares, on cards of this driver."""
        return super().may_run(command) and any(
            list(command)
            == loader.command(
                fpga_images.Image(Path(word), kind, is_partial='partial' in command[:-1])
            )
            for card in pci.functions(self.sysfs)
            if not card.is_virtual and self.model(card)
            for loader in self._all_loaders(card)
            for kind in loader.tool.kinds
            for word in command
            if word.startswith('/')
        )

    def manager_loaders(self, card: pci.Function) -> tuple[Loader, ...]:
        """Returns the loader of a card whose only tool is the kernel's FPGA manager. Mainline
        kernels have no file to load images with; those of Xilinx have."""
        return tuple(
            Loader(fpga_tools.MANAGER, fpga_tools.Target(card, device=node.name))
            for node in _managers(card)
            if node.has('firmware')
        )[:1]

    def _find(self, deployable: str) -> tuple[pci.Function, Region | None]:
        """Returns a card and one of its regions; None for the region if the name is that of the
        card."""
        match = NAME.fullmatch(deployable)
        card = pci.Function.at(self.sysfs, match['card'] if match else 'nothing')
        if match is None or not card.exists() or card.is_virtual or not self.model(card):
            raise errors.DriverFailed(
                name=self.name, why=_not_programmed(deployable, 'it is not present')
            )
        if match['region'] is None:
            return card, None
        try:
            if why := self.lack(card):
                raise pci.Unusable(why)
            regions = {each.number: each for each in self.regions(card)}
            return card, regions[int(match['region'])]
        except (pci.Unusable, KeyError) as error:
            raise errors.DriverFailed(
                name=self.name, why=_not_programmed(deployable, f'it is not present: {error}')
            ) from error

    @staticmethod
    def _misfit(region: Region, image: fpga_images.Image) -> str | None:
        if image.kind == fpga_images.Kind.RAW or image.interface in region.types:
            return None
        if image.interface is None and image.kind == fpga_images.Kind.XCLBIN:
            return None  # the image need not name it: XRT compares another field
        taken = ', '.join(region.types) or 'nothing we know'
        return f'the image is for {image.interface}, the region takes {taken}'

    @staticmethod
    def _parts(card: pci.Function, region: Region | None) -> list[pci.Function]:
        """Returns the functions that must not be in use: those of the region, or of the card."""
        if region is not None:
            return [each.function for each in region.places]
        return [part for each in card.siblings for part in (each, *each.virtual_functions.values())]

    def _flash_loaders(self, card: pci.Function) -> tuple[Loader, ...]:
        return self.flash_loaders(card) if self.conf.fpga.flash_cards else ()

    def _all_loaders(self, card: pci.Function) -> Iterator[Loader]:
        yield from self._flash_loaders(card)
        try:
            for region in self.regions(card) if not self.lack(card) else ():
                yield from region.loaders
        except pci.Unusable:
            return

    def _refusal(self, deployable: str, why: str) -> errors.NotLoaded:
        return errors.NotLoaded(name=self.name, why=_not_programmed(deployable, why))

    @staticmethod
    def _broken(card: pci.Function) -> str | None:
        """Returns the fault of a card whose last image was not loaded completely."""
        for node in _managers(card):
            if (state := node.read('state')) in BROKEN:
                return (
                    f'The FPGA manager {node.name} of {card.address} says "{state}": load an '
                    'image anew.'
                )
        return None


def _not_programmed(deployable: str, why: str) -> str:
    return f'{deployable} cannot be programmed: {why.rstrip(".")}.'


def _managers(card: pci.Function) -> list[Node]:
    return [node for pattern in MANAGERS for node in card.children(pattern)]


def attribute(key: str, value: str, facts: Facts | None = None) -> objects.Attribute:
    """Returns an attribute, with further facts as its children."""
    return objects.Attribute(
        key=key,
        value=value,
        children=[
            objects.Attribute(key=name, value=text) for name, text in sorted((facts or {}).items())
        ],
    )


def text(card: Node, patterns: Iterable[str]) -> str | None:
    """Returns the text of the first file that matches one of the patterns and is not empty."""
    found = (node.read() for pattern in patterns for node in card.children(pattern))
    return next(filter(None, found), None)


def uuids(words: str | None) -> tuple[str, ...]:
    """Returns the uuids of a text, with or without dashes. Other words are left out."""
    found = filter(None, map(_uuid, (words or '').split()))
    return tuple(each for each in dict.fromkeys(found) if each not in NO_IDS)


def function(words: str | None) -> str | None:
    """Returns the function in a text, as in Place.content."""
    found = _uuid((words or '').strip())
    return found if found == NO_FUNCTION else next(iter(uuids(found)), None)


def _uuid(word: str) -> str | None:
    try:
        return str(uuid.UUID(word))
    except ValueError:
        return None


def _configured_kpis(conf: cfg.ConfigOpts) -> dict[str, dict[str, str]]:
    """Returns the figures of functions that the operator gives, by uuid."""
    known: dict[str, dict[str, str]] = {}
    for line in conf.fpga.function_kpis:
        name, _, rest = line.partition(':')
        pairs = [pair.partition('=') for pair in rest.split(',')]
        if len(uuids(name)) != 1 or not all(key.strip() and value for key, _, value in pairs):
            raise errors.ConfigError(
                why=f'[fpga] function_kpis has {line}, which is not like '
                'd8424dc4-a4a3-c413-f89e-433683f9040b:throughput_gbps=40,latency_us=3'
            )
        known.setdefault(uuids(name)[0], {}).update(
            {key.strip(): value.strip() for key, _, value in pairs}
        )
    return known


def _configured_blanks(conf: cfg.ConfigOpts) -> dict[str, Path]:
    """Returns the images that empty regions, by uuid of their type or by name of a driver."""
    known = {}
    for line in conf.fpga.blank_images:
        name, _, path = line.partition(':')
        if not name.strip() or not path.strip().startswith('/'):
            raise errors.ConfigError(
                why=f'[fpga] blank_images has {line}, which is not like '
                '69528db6-eb31-577a-8c36-68f9faa081f6:/etc/cyborg/blank.gbs'
            )
        known[next(iter(uuids(name)), name.strip())] = Path(path.strip())
    return known
