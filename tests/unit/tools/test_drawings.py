# SPDX-License-Identifier: Apache-2.0
"""The figures of the documentation are those that the code would draw now."""

import re
from xml.etree import ElementTree

import pytest

from cyborg.objects.arq_states import TRANSITIONS, State
from tests.fixtures import pages, shown
from tools import drawings

SVG = '{http://www.w3.org/2000/svg}'


def parsed(name):
    return ElementTree.fromstring((drawings.IMAGES / name).read_text())


@pytest.mark.parametrize('name', drawings.FIGURES)
def test_a_figure_is_up_to_date(name):
    assert (drawings.IMAGES / name).read_text() == drawings.FIGURES[name]().svg(), (
        'Run: python -m tools.drawings'
    )


@pytest.mark.parametrize('name', drawings.FIGURES)
def test_a_figure_is_on_a_page(name):
    directives = (f'image:: /images/{name}', f'figure:: /images/{name}')
    assert any(each in shown.text(page) for page in shown.names() for each in directives)


def test_there_are_no_other_figures():
    assert {path.name for path in (pages.SOURCE / 'images').iterdir()} == {*drawings.FIGURES}


def test_the_drawing_has_every_state_and_every_change_of_the_table():
    root = parsed('states.svg')
    texts = {text.text for text in root.iter(f'{SVG}text')}
    assert texts >= {str(state) for state in State}
    drawn = {
        change
        for group in root.iter(f'{SVG}g')
        for change in group.find(f'{SVG}title').text.split('; ')
    }
    assert drawn == {
        f'{source} {event} {to}'
        for event, changes in TRANSITIONS.items()
        for source, to in changes.items()
    }


def test_a_change_of_the_table_is_noticed(monkeypatch):
    monkeypatch.setitem(TRANSITIONS['failed'], State.BOUND, State.BIND_FAILED)
    changed = drawings.states().svg()
    assert '<title>Bound failed BindFailed</title>' in changed
    assert changed != (drawings.IMAGES / 'states.svg').read_text()


def test_the_processes_are_those_that_we_install():
    texts = ' '.join(text.text for text in parsed('architecture.svg').iter(f'{SVG}text'))
    named = set(re.findall(r'cyborg-\w+', texts))
    assert named == {'cyborg-api', 'cyborg-conductor', 'cyborg-agent'} <= {*shown.scripts()}
