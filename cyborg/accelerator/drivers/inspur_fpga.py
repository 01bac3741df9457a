# SPDX-License-Identifier: Apache-2.0
"""Inspur FPGAs. Only the maker's tools show what they are programmed with."""

from collections.abc import Iterator

from cyborg.accelerator import fpga, fpga_tools, pci

TRAITS = ('CUSTOM_FPGA_PRODUCT_ID_{device}',)


class InspurFpgaDriver(fpga.Driver):
    """A card has one region, which is the whole card. If the kernel has an FPGA manager for it
    that can load files, the manager programs it."""

    name = 'inspur_fpga_driver'
    maker = 'INSPUR'
    options = (pci.resource_class_option('FPGA'),)
    runs = fpga_tools.runs(fpga_tools.MANAGER)
    catalogue = (
        pci.Model('1bd4', '0911', 'Inspur F10A', 'FPGA', TRAITS, classes=('1200',)),
        # the maker's other ids include those of disks, so the class code counts
        pci.Model('1bd4', pci.ANY, 'Inspur FPGA', 'FPGA', TRAITS, classes=('1200',)),
    )

    def regions(self, card: pci.Function) -> Iterator[fpga.Region]:
        if card.virtual_functions:
            raise pci.Unusable(
                f'{card.address} has virtual functions, so it cannot be given '
                'out whole: remove them.'
            )
        yield fpga.Region(0, (fpga.Place(card),), loaders=self.manager_loaders(card))
