# SPDX-License-Identifier: Apache-2.0
"""Images for FPGAs: the kind of a file, and what its header says."""

import dataclasses
import json
import uuid
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import IO

#: How an image of Intel's (GBS) begins. The length of a description follows, then the
#: description in JSON.
GBS_MAGIC = b'XeonFPGA\xb7GBSv001'
LONGEST_DESCRIPTION = 64 * 1024
#: How a signed GBS begins. The length and the type of its payload follow. The payload itself
#: comes after the signature.
SIGNED_MAGIC = 0xB6EAFD19.to_bytes(4, 'little')
SIGNED_PAYLOAD = 1024
SIGNED_TYPES = {0: 'fim', 1: 'firmware of a board controller', 2: 'signed_gbs'}
#: How a container of Xilinx (axlf) begins, and the offsets of fields in its header.
XCLBIN_MAGIC = b'xclbin2\0'
XCLBIN_LENGTH, XCLBIN_INTERFACE, XCLBIN_UUID, XCLBIN_HEADER = 304, 336, 416, 456
#: The property of an image in Glance that names its kind.
TYPE_PROPERTY = 'bitstream_type'


class Kind(StrEnum):
    """The kind of an image, and the value of its property in Glance."""

    GBS = 'gbs'  #: Intel, for a region
    SIGNED_GBS = 'signed_gbs'  #: the same, signed
    FIM = 'fim'  #: Intel, for the flash of a card
    XCLBIN = 'xclbin'  #: Xilinx, for the part of a card that users program
    XSABIN = 'xsabin'  #: Xilinx, for the flash of a card: its shell
    RAW = 'raw'  #: for the kernel's FPGA manager, which checks the format itself


class Unfit(Exception):
    """An image cannot be loaded. The message says why."""


@dataclasses.dataclass(frozen=True)
class Image:
    """A file, and what its header says."""

    path: Path
    kind: Kind
    interface: str | None = None  #: the type of region that it is made for, if it is known
    is_partial: bool = False  #: for a raw image: it leaves the rest of the card unchanged


def read(path: Path, properties: Mapping[str, str]) -> Image:
    """Returns the image. Its kind comes from the file and from the properties in Glance."""
    image = _opened(path)
    declared = _declared(properties)
    if image is None:
        if declared != Kind.RAW:
            raise Unfit(
                'the image is not recognized: its beginning is that of no known '
                f'type, and its {TYPE_PROPERTY} in Glance is not {Kind.RAW}'
            )
        partial = properties.get('partial_reconfiguration', '').lower() in ('true', '1', 'yes')
        return Image(path, Kind.RAW, is_partial=partial)
    if declared == Kind.XSABIN and image.kind == Kind.XCLBIN:  # both are the same container
        return dataclasses.replace(image, kind=Kind.XSABIN)
    if declared is not None and declared != image.kind:
        raise Unfit(
            f'Glance says that the image is of type {declared}, but it is of type {image.kind}'
        )
    return image


def read_local(path: Path, kinds: Collection[Kind]) -> Image:
    """Returns an image that is not in Glance, for a region that takes these kinds. A file whose
    beginning and suffix are those of no known kind is raw if the region takes raw images."""
    image = _opened(path)
    declared = _declared({'name': path.name})
    if image is None:
        if declared is None and Kind.RAW in kinds:
            return Image(path, Kind.RAW)
        raise Unfit(f'{path} is not recognized: its beginning is that of no known type')
    if declared is not None and declared != image.kind:
        raise Unfit(f'{path} has the suffix of type {declared}, but it is of type {image.kind}')
    return image


def names(kinds: Iterable[Kind]) -> str:
    """Returns kinds as a part of a sentence."""
    return ' or '.join(sorted(kinds)) or 'no image'


def _declared(properties: Mapping[str, str]) -> Kind | None:
    """Returns the kind in Glance: that of the property, else that of the name's suffix."""
    told = properties.get(TYPE_PROPERTY)
    if told:
        if told.lower() not in set(Kind):
            raise Unfit(
                f'its property {TYPE_PROPERTY} is {told[:64]}, not one of {", ".join(Kind)}'
            )
        return Kind(told.lower())
    suffix = Path(properties.get('name', '')).suffix.lower().removeprefix('.')
    return Kind(suffix) if suffix in (Kind.GBS, Kind.XCLBIN, Kind.XSABIN) else None


def _opened(path: Path) -> Image | None:
    """Returns the image; None if its beginning is that of no known type."""
    try:
        with open(path, 'rb') as file:
            return _recognized(path, file)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise Unfit(f'the image is not recognized: it cannot be read ({error!r})') from error


def _recognized(path: Path, file: IO[bytes]) -> Image | None:
    beginning = file.read(XCLBIN_HEADER)
    if beginning.startswith(XCLBIN_MAGIC):
        return Image(path, Kind.XCLBIN, _xclbin_interface(beginning, path.stat().st_size))
    if beginning.startswith(SIGNED_MAGIC):
        kind = _signed_kind(beginning)
        if kind == Kind.FIM:
            return Image(path, kind)
        file.seek(SIGNED_PAYLOAD)
        if file.read(len(GBS_MAGIC)) != GBS_MAGIC:
            raise Unfit('the image is signed, but no GBS is in it')
        return Image(path, kind, _gbs_interface(file))
    if beginning.startswith(GBS_MAGIC):
        file.seek(len(GBS_MAGIC))
        return Image(path, Kind.GBS, _gbs_interface(file))
    return None


def _signed_kind(beginning: bytes) -> Kind:
    payload = int.from_bytes(beginning[8:12], 'little')
    kind = SIGNED_TYPES.get(payload & 0xFF, f'payload type {payload & 0xFF}')
    if payload >> 8 & 0xFF:
        raise Unfit('the image changes the keys of a card, which is not done here')
    if kind not in (Kind.FIM, Kind.SIGNED_GBS):
        raise Unfit(f'the image is {kind}, which is not loaded here')
    return Kind(kind)


def _gbs_interface(file: IO[bytes]) -> str:
    length = int.from_bytes(file.read(4), 'little')
    if not 0 < length <= LONGEST_DESCRIPTION:
        raise Unfit('the image is not recognized: it has no description')
    try:
        description = json.loads(file.read(length))
    except (ValueError, RecursionError) as error:
        # the error may quote all of it
        raise Unfit('the image is not recognized: its description is not JSON') from error
    try:
        return str(uuid.UUID(description['afu-image']['interface-uuid']))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Unfit('the image is not recognized: it names no region') from error


def _xclbin_interface(beginning: bytes, size: int) -> str | None:
    length = int.from_bytes(beginning[XCLBIN_LENGTH : XCLBIN_LENGTH + 8], 'little')
    if len(beginning) < XCLBIN_HEADER or length != size:
        raise Unfit(f'the image should have {length} bytes, but has {size}')
    found = uuid.UUID(bytes=beginning[XCLBIN_INTERFACE : XCLBIN_INTERFACE + 16])
    return str(found) if found.int else None
