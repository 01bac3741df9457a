# SPDX-License-Identifier: Apache-2.0
"""Inspur FPGAs: what is in them only the maker's tools can tell."""

from collections.abc import Iterator

from cyborg.accelerator import fpga, fpga_tools, pci

TRAITS = ('CUSTOM_FPGA_PRODUCT_ID_{device}',)


class InspurFpgaDriver(fpga.Driver):
    """One region, which is the whole card. Where the kernel shows an FPGA manager for it that can
    load files, that programs it."""

    name = 'inspur_fpga_driver'
    maker = 'INSPUR'
    runs = fpga_tools.runs(fpga_tools.MANAGER)
    catalogue = (
        pci.Model('1bd4', '0911', 'Inspur F10A', 'FPGA', TRAITS, classes=('1200',)),
        # the maker's other ids include disks: the class tells
        pci.Model('1bd4', pci.ANY, 'Inspur FPGA', 'FPGA', TRAITS, classes=('1200',)),
    )

    def regions(self, card: pci.Function) -> Iterator[fpga.Region]:
        if card.virtual_functions:
            raise pci.Unusable(f'{card.address} has virtual functions, so it cannot be given '
                               'out whole: take them away.')
        yield fpga.Region(0, (fpga.Place(card),), loaders=self.manager_loaders(card))
