# SPDX-License-Identifier: Apache-2.0
"""Xilinx Alveo: cards of two functions, one to manage them and one for their users."""

from collections.abc import Iterator

from cyborg import objects
from cyborg.accelerator import fpga, fpga_tools, pci, traits
from cyborg.accelerator.fpga_tools import Loader, Target

GOLDEN = 'd0'  #: how ids of cards without a shell begin
USERS_DRIVER = 'xocl'
MOST_TYPES = 8  #: the largest number of types that a shell can have
TRAITS = ('CUSTOM_FPGA_PRODUCT_ID_{device}',)


def _model(product: str, *devices: str) -> pci.Model:
    """Returns a model with the ids of both functions, and of a card without a shell."""
    return pci.Model('10ee', devices, f'Xilinx Alveo {product}', 'FPGA', TRAITS, classes=('1200',))


class XilinxFpgaDriver(fpga.Driver):
    """Gives the function for users to a guest. The host keeps the function that manages the card,
    and with it the shell."""

    name = 'xilinx_fpga_driver'
    maker = 'XILINX'
    options = (pci.resource_class_option('FPGA'),)
    runs = fpga_tools.runs(fpga_tools.XBUTIL, fpga_tools.XBMGMT, fpga_tools.XBMGMT_BASE)
    catalogue = (
        _model('U200', '5000', '5001', 'd000'),
        _model('U250', '5004', '5005', 'd004'),
        _model('U280', '500c', '500d', 'd00c'),
        _model('U50', '5020', '5021', 'd020'),
        _model('U55C', '505c', '505d'),
    )

    def model(self, function: pci.Function) -> pci.Model | None:
        """Returns one model for a card: that of the function for users, if it has one."""
        model = super().model(function)
        if (
            model
            and _manages(function)
            and any(not _manages(each) and model.fits(each) for each in function.siblings)
        ):
            return None
        return model

    def control_function(self, function: pci.Function) -> pci.Function | None:
        return next(
            (each for each in function.siblings if _manages(each) and pci.Driver.model(self, each)),
            None,
        )

    def key(self, function: pci.Function) -> str:
        return function.address.rpartition('.')[0]

    def fault_if_changed(self, card: pci.Function) -> str | None:
        return None  # the function for users is given out whole, even if it supports SR-IOV

    def lack(self, card: pci.Function) -> str | None:
        if card.device.startswith(GOLDEN):
            return (
                f'{card.address} has no shell: flash one with xbmgmt program --base and '
                'switch the host off and on.'
            )
        if _manages(card):
            return (
                f'{card.address} has no function for users: reset the card, or flash its '
                'shell anew with xbmgmt program --base.'
            )
        return None

    def flash_loaders(self, card: pci.Function) -> tuple[Loader, ...]:
        manager = self.control_function(card)
        return (Loader(fpga_tools.XBMGMT_BASE, Target(manager)),) if manager else ()

    def regions(self, card: pci.Function) -> Iterator[fpga.Region]:
        # the drivers of both functions may show it; that of users is unbound while a guest has it
        types = (
            each
            for function in card.siblings
            for each in fpga.uuids(function.read('interface_uuids'))[:MOST_TYPES]
        )
        # the uuid of the image is also that of its function
        programmed = fpga.function(card.read('xclbinuuid'))
        clocks = (fpga.text(card, ('icap*/clock_freqs',)) or '').split()
        yield fpga.Region(
            0,
            (fpga.Place(card, programmed),),
            tuple(dict.fromkeys(types)),
            next(iter(fpga.uuids(programmed)), None),
            {
                f'clock{number}_mhz': clock
                for number, clock in enumerate(clocks[:4])
                if clock.isdecimal() and clock != '0'
            },
            tuple(self._loaders(card)),
        )

    def _loaders(self, card: pci.Function) -> Iterator[Loader]:
        if card.driver == USERS_DRIVER:
            yield Loader(fpga_tools.XBUTIL, Target(card))
        if manager := self.control_function(card):
            yield Loader(fpga_tools.XBMGMT, Target(manager))

    def slice(self, card: pci.Function, model: pci.Model) -> Iterator[objects.Deployable]:
        # profiles may ask for the id of either function
        ids = [
            traits.custom('FPGA', 'PRODUCT_ID', each.device)
            for each in card.siblings
            if model.fits(each)
        ]
        for deployable in super().slice(card, model):
            deployable.traits = list(dict.fromkeys([*deployable.traits, *ids]))
            yield deployable


def _manages(function: pci.Function) -> bool:
    """Returns whether a function manages the card. Of each pair of ids, the even one does."""
    return function.device[-1:] in tuple('02468ace')
