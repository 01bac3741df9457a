# SPDX-License-Identifier: Apache-2.0
"""The page of the standalone in a real browser, as a newcomer uses it."""

import http.server
import json
import os
import pathlib
import threading

import pytest

from tests.fixtures.bench import running
from tests.fixtures.browser import chromium

T4, TIMECARD, SPARE = '0000:3b:00.0', '0000:85:00.0', '0000:d8:00.0'
PICTURE = pathlib.Path(__file__).parents[2] / 'doc/source/_static/standalone.png'
LARGEST_PICTURE = 150_000  #: bytes
ATTACK = """<!DOCTYPE html><title>elsewhere</title><script>
const target = {target}, body = {body};
const attempts = ['text/plain', 'application/json'].flatMap(type => ['cors', 'no-cors'].map(mode =>
  fetch(target, {{method: 'POST', mode, headers: {{'Content-Type': type}}, body}})));
Promise.allSettled(attempts).then(() => {{ document.title = 'done'; }});
</script>"""


@pytest.fixture(scope='module')
def bench(tmp_path_factory):
    with running(tmp_path_factory.mktemp('bench')) as made:
        yield made


@pytest.fixture(scope='module')
def window():
    with chromium() as made:
        yield made


@pytest.fixture
def page(window, bench):
    window.complaints()
    window.open(f'{bench.url}/')
    window.wait_for(lambda: window.texts('#link') == ['live'], 'The page is not live')
    yield window
    assert window.complaints() == []


def card(address):
    return f'article[data-address="{address}"]'


def units(page, state):
    return len(page.all(f'.unit[data-state="{state}"]'))


def create_profile(page, name, kind, count='1', trait=''):
    page.type('#profile-name', name)
    page.choose('#profile-class', kind)
    page.type('#profile-units', count)
    page.choose('#profile-trait', trait)
    page.click('#profile button')
    page.wait_for(lambda: name in page.texts('#profiles strong'), 'The profile is not shown')


def boot(page, profile, name):
    page.choose('#boot-profile', profile)
    page.type('#boot-name', name)
    page.click('#boot button')
    page.wait_for(lambda: name in page.texts('#servers strong'), 'The server is not shown')


def test_the_host_is_shown_with_its_cards_and_units(page):
    assert sorted(page.texts('section[data-host] h3')) == [
        'Intel 4xxx',
        'Intel N6001',
        'Meta Time Card',
        'NVIDIA A100',
        'NVIDIA T4',
    ]
    assert len(page.all('.units .unit')) == 8 + 5 + 2 + 16 + 1
    assert units(page, 'free') == 32
    assert '32 units: 32 free, 0 in use' in page.texts('#totals')
    assert 'nvidia_gpu_driver ok' in page.texts('#agents .small')


def test_a_server_from_its_profile_to_its_end(page):
    create_profile(page, 'two-vgpus', 'VGPU', '2', 'CUSTOM_NVIDIA_1EB8_T4_2Q')
    boot(page, 'two-vgpus', 'web')
    page.wait_for(lambda: page.texts('#servers .pill') == ['ACTIVE'], 'It does not run')
    page.wait_for(lambda: units(page, 'Bound') == 2, 'No unit is held')
    assert page.texts('#requests .pill') == ['Bound', 'Bound']
    page.click('#requests button', 'History')
    page.wait_for(lambda: page.texts('.history li'), 'There is no history')
    assert 'create: Initial' in page.texts('.history li')[0]
    assert 'Bound on compute1' in page.texts('.history li')[-1]
    page.click('#servers button', 'Mark')
    page.wait_for(lambda: len(page.all('.unit.chosen')) == 2, 'Its units are not marked')
    page.click('#servers button', 'Delete')
    page.wait_for(lambda: units(page, 'free') == 32, 'They are not free again')
    assert page.texts('#servers .pill') == []
    assert any('is gone' in line for line in page.texts('#journal div'))
    page.click('#profiles button', 'Delete')
    page.wait_for(lambda: not page.texts('#profiles strong'), 'The profile is still there')


def test_a_server_that_fits_nowhere_says_why(page):
    create_profile(page, 'too-many', 'CUSTOM_QAT', '17')
    boot(page, 'too-many', 'big')
    page.wait_for(lambda: page.texts('#servers .pill') == ['ERROR'], 'It is not in error')
    assert 'No valid host was found' in page.texts('#servers .why')[0]
    page.click('#servers button', 'Delete')
    page.wait_for(lambda: not page.texts('#servers .pill'), 'It is still there')


def test_an_ill_card_is_shown_until_it_is_healed(page):
    page.click(f'{card(TIMECARD)} button', 'Make fail')
    page.wait_for(lambda: page.texts(f'{card(TIMECARD)}.fault .why'), 'No fault is shown')
    page.wait_for(lambda: units(page, 'at_fault') == 1, 'Its unit is still offered')
    page.click(f'{card(TIMECARD)} button', 'Heal')
    page.wait_for(lambda: units(page, 'at_fault') == 0, 'It is not healed')


def test_a_card_is_plugged_in_and_pulled_out(page):
    page.choose('section[data-host] select', 't4')
    page.click('button.plug')
    page.wait_for(lambda: page.texts(f'{card(SPARE)} .units'), 'The card does not appear')
    page.click(f'{card(SPARE)} button', 'Pull out')
    page.wait_for(lambda: not page.all(card(SPARE)), 'The card is still there')


def test_a_host_is_rebooted(page):
    page.click('button.reboot')
    page.wait_for(lambda: page.texts('#said') == ['compute1 was rebooted.'], 'It says nothing')
    page.wait_for(lambda: units(page, 'free') == 32, 'Its cards do not return')


def test_a_card_is_disabled_and_enabled(page):
    page.click(f'{card(TIMECARD)} button', 'Disable')
    page.wait_for(lambda: units(page, 'disabled') == 1, 'It is not withheld')
    page.click(f'{card(TIMECARD)} button', 'Enable')
    page.wait_for(lambda: units(page, 'disabled') == 0, 'It is still withheld')


def test_a_name_cannot_become_markup(page, bench):
    name = '<img src=x onerror="document.title=1">'
    create_profile(page, 'plain-one', 'CUSTOM_HPTS')
    boot(page, 'plain-one', name)
    assert page.all('main img') == []
    assert page.driver.title == 'Cyborg standalone'
    assert bench.control('delete', server=name).endswith('is deleted.')


def test_what_was_typed_stays_if_it_is_refused(page):
    create_profile(page, 'taken', 'CUSTOM_QAT')
    page.wait_for(lambda: page.value('#profile-name') == '', 'The name is still there')
    page.type('#profile-name', 'taken')
    page.click('#profile button')
    page.wait_for(lambda: page.texts('#said.wrong'), 'The refusal is not told')
    assert 'taken' in page.texts('#said')[0]
    assert page.value('#profile-name') == 'taken'
    page.type('#profile-name', '')
    page.forgive('409')


def test_a_button_is_not_clicked_twice_while_it_works(page):
    find = "document.querySelector('button.reboot')"
    assert page.driver.execute_script(f'const it = {find}; it.click(); return it.disabled')
    page.wait_for(lambda: page.texts('#said') == ['compute1 was rebooted.'], 'It says nothing')
    page.wait_for(
        lambda: page.driver.execute_script(f'return !{find}.disabled'), 'It cannot be used again'
    )
    page.wait_for(lambda: units(page, 'free') == 32, 'Its cards do not return')


@pytest.fixture
def narrow(page):
    whole = page.driver.get_window_size()
    page.driver.set_window_size(420, 900)
    yield page
    page.driver.set_window_size(whole['width'], whole['height'])


def test_a_narrow_window_shows_all_and_is_not_filled_by_the_header(narrow):
    measured = 'const root = document.documentElement, it = document.querySelector("header");'
    assert narrow.driver.execute_script(f'{measured} return root.scrollWidth <= root.clientWidth')
    assert narrow.driver.execute_script(f'{measured} return it.offsetHeight') < 140
    narrow.driver.execute_script('window.scrollTo(0, 1000)')
    bottom = narrow.driver.execute_script(f'{measured} return it.getBoundingClientRect().bottom')
    assert bottom < 0  # it does not cover what one reads


def test_a_page_of_another_site_changes_nothing(window, bench):
    text = ATTACK.format(
        target=json.dumps(f'{bench.url}/control/pull'),
        body=json.dumps(json.dumps({'at': T4})),
    )

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header('Content-Type', 'text/html')
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        window.open(f'http://127.0.0.1:{server.server_port}/')
        window.wait_for(lambda: window.driver.title == 'done', 'The attack does not end')
        server.shutdown()
    assert T4 in {each['at'] for each in bench.get('/control')['hosts'][0]['cards']}
    assert bench.control('pull', at=T4).startswith('NVIDIA T4 is no longer')  # it could be pulled
    assert bench.control('plug', card='10de:1eb8', at=T4).endswith('of compute1.')


def test_much_at_once_as_the_documentation_shows_it(page, tmp_path):
    """``CYBORG_SCREENSHOT=page.png`` keeps the picture; for the documentation it is made smaller:
    ``convert page.png -dither None -colors 64 PNG8:doc/source/_static/standalone.png``."""
    create_profile(page, 'render', 'VGPU', '3', 'CUSTOM_NVIDIA_1EB8_T4_2Q')
    create_profile(page, 'compress', 'CUSTOM_QAT', '4')
    for profile, name in (('render', 'studio'), ('compress', 'archive')):
        boot(page, profile, name)
    page.click(f'{card(TIMECARD)} button', 'Make fail')
    page.wait_for(lambda: units(page, 'at_fault') == 1, 'It is not ill')
    page.wait_for(lambda: units(page, 'Bound') == 7, 'They are not bound')
    page.click('#requests button', 'History')
    page.wait_for(lambda: page.texts('.history li'), 'There is no history')
    page.wait_for(lambda: page.texts('#said') == [''], 'The last sentence is still shown')
    page.driver.execute_script('window.scrollTo(0, 0)')
    picture = os.environ.get('CYBORG_SCREENSHOT', str(tmp_path / 'page.png'))
    assert page.driver.save_screenshot(picture)
    assert PICTURE.stat().st_size < LARGEST_PICTURE
