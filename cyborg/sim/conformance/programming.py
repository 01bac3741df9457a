# SPDX-License-Identifier: Apache-2.0
"""Promises about programming: that it works, can be repeated, and that a refusal does no harm."""

import json
import tempfile
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from cyborg import errors, objects
from cyborg.accelerator import fpga_images, pci
from cyborg.accelerator.fpga_images import Kind
from cyborg.accelerator.sysfs import Sysfs
from cyborg.sim.conformance.bench import Bench, Checks, Failed, Skipped, plain
from cyborg.sim.conformance.serving import judged
from cyborg.sim.fpga import SYNC

FUNCTION = str(uuid.UUID('c0ffee00-1234-4678-9abc-def012345678'))
STRANGER = str(uuid.UUID('badbad00-1234-4678-9abc-def012345678'))


def _gbs(interface: str) -> bytes:
    description = json.dumps({'version': 1, 'afu-image': {
        'interface-uuid': interface,
        'accelerator-clusters': [{'accelerator-type-uuid': FUNCTION}]}}).encode()
    return (fpga_images.GBS_MAGIC + len(description).to_bytes(4, 'little') + description
            + b'bits' * 100)


def _xclbin(interface: str) -> bytes:
    header = bytearray(fpga_images.XCLBIN_HEADER)
    header[:8] = fpga_images.XCLBIN_MAGIC
    header[fpga_images.XCLBIN_LENGTH:fpga_images.XCLBIN_LENGTH + 8] = (
        len(header) + 100).to_bytes(8, 'little')
    for place, value in ((fpga_images.XCLBIN_INTERFACE, interface),
                         (fpga_images.XCLBIN_UUID, FUNCTION)):
        header[place:place + 16] = uuid.UUID(value).bytes
    return bytes(header) + b'b' * 100


#: Images that the simulator can make, for a type of region, and whether they say what they do.
MADE: Mapping[Kind, tuple[Callable[[str], bytes], bool]] = {
    Kind.GBS: (_gbs, True), Kind.XCLBIN: (_xclbin, True),
    Kind.RAW: (lambda interface: SYNC + b'bits' * 100, False)}


def does_what_it_is_told(bench: Bench) -> None:
    """A programmed region does what its image says, also after the same image again."""
    for key, part in _programmable(bench):
        kind = _fitting(bench, part)
        first = plain(bench.discover()[key])
        if MADE[kind][1] and FUNCTION not in json.dumps(first):
            raise Failed(f'{part.name} took an image of type {kind}, but nothing tells that it '
                         f'does now what that says ({FUNCTION})')
        _program(bench, part, kind)
        if plain(bench.discover()[key]) != first:
            raise Failed(f'{part.name} is another one after the same image again')


def refusals_do_no_harm(bench: Bench) -> None:
    """An image that is refused leaves what was there, and the refusal says why."""
    for key, part in _programmable(bench):
        before = plain(bench.discover()[key])
        for content in (b'\x00\xffnoise' * 100, _gbs(STRANGER), _xclbin(STRANGER), b''):
            try:
                _load(bench, part, content, {})
            except errors.DriverFailed as error:
                if part.name not in error.faultstring:
                    raise Failed(f'"{error.faultstring}" does not say what was refused, '
                                 f'which is {part.name}') from error
            else:
                raise Failed(f'{part.name} took an image that is not for it')
            if plain(bench.discover()[key]) != before:
                raise Failed(f'{part.name} is another one after an image was refused')


def declares_its_tools(bench: Bench) -> None:
    """Programming runs only what the driver declares."""
    sysfs, undeclared = judged(bench)
    for _, part in _programmable(bench):
        _program(bench, part, _fitting(bench, part), sysfs)
    if undeclared:
        raise Failed(f'it {undeclared[0]}, which it does not declare')


def leaves_guests_alone(bench: Bench) -> None:
    """What a guest has is not programmed."""
    for _, part in _programmable(bench):
        kind = _fitting(bench, part)
        addresses = list(filter(None, (pci.address_of(each.info)
                                       for each in part.attach_handles)))
        for address in addresses:
            bench.host.bus.rebind(address, 'vfio-pci')
        try:
            _program(bench, part, kind)
        except errors.DriverFailed:
            continue
        if addresses:
            raise Failed(f'{part.name} was programmed while a guest had it')


def _programmable(bench: Bench) -> list[tuple[str, objects.Deployable]]:
    """One a model is enough: the others are the same to the driver."""
    if not bench.host.cards:  # on a real host nothing of the kind is tried
        raise Skipped('there is no card')
    found: dict[str | None, tuple[str, objects.Deployable]] = {}
    for device in bench.discover().values():
        for part in device.deployables:
            if part.is_programmable and part.attach_handles:
                found.setdefault(device.model, (device.key, part))
    if not found:
        raise Skipped('nothing that it offers can be programmed')
    return list(found.values())


def _fitting(bench: Bench, part: objects.Deployable) -> Kind:
    """Load an image of the first type that is taken; returns the type."""
    for kind in MADE:
        try:
            _program(bench, part, kind)
        except errors.DriverFailed:
            continue
        return kind
    raise Skipped(f'the simulator can make no image that {part.name} takes')


def _program(bench: Bench, part: objects.Deployable, kind: Kind,
             sysfs: Sysfs | None = None) -> None:
    _load(bench, part, MADE[kind][0](_region_type(part)),
          {fpga_images.TYPE_PROPERTY: str(kind)}, sysfs)


def _load(bench: Bench, part: objects.Deployable, content: bytes,
          properties: Mapping[str, str], sysfs: Sysfs | None = None) -> None:
    with tempfile.NamedTemporaryFile(prefix='cyborg-sim-') as image:
        image.write(content)
        image.flush()
        bench.driver(sysfs).program(part.name, Path(image.name), properties)


def _region_type(part: objects.Deployable) -> str:
    types = (each.value for each in part.attributes if each.key == 'region_type_uuid')
    return next(types, str(uuid.UUID(int=0)))


PROGRAMMING = Checks(does_what_it_is_told, refusals_do_no_harm, declares_its_tools,
                     leaves_guests_alone, last=[leaves_guests_alone])
