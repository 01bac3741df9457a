# SPDX-License-Identifier: Apache-2.0
"""Every driver has what an operator needs to use it."""

from pathlib import Path

import pytest
import stevedore

from cyborg.accelerator import driver, pci
from cyborg.sim import catalogue

PAGES = Path(__file__).parents[3] / 'doc/source/admin/drivers'
NAMES = sorted(stevedore.ExtensionManager(driver.NAMESPACE).entry_points_names())
#: whose options have a section with another name, which deployers know
SECTIONS = {'pci_driver': 'pci'}
#: no PCI functions, or whichever the operator lists
WITHOUT_CATALOGUE = {'fake_driver', 'nvmf_spdk_driver', 'pci_driver'}


@pytest.mark.parametrize('name', NAMES)
def test_it_has_a_page_that_is_listed(name):
    [page] = [
        path
        for path in PAGES.glob('*.rst')
        if any(
            line.startswith((':Driver', '          of')) and f'``{name}``' in line
            for line in path.read_text().splitlines()
        )
    ]
    assert f'   {page.stem}\n' in (PAGES / 'index.rst').read_text()


@pytest.mark.parametrize('name', NAMES)
def test_it_has_a_section_of_options(conf, name):
    assert conf[SECTIONS.get(name, name)]


@pytest.mark.parametrize('name', sorted(set(NAMES) - WITHOUT_CATALOGUE))
def test_one_of_its_cards_can_be_simulated(host, load, name):
    for number, model in enumerate(catalogue.models()):
        host.plug_in(model, at=f'0000:{0x10 + 2 * number:02x}:00.0')
    assert any(
        model.fits(function)
        for model in load(name).catalogue
        for function in pci.functions(host.sysfs)
    )
