# SPDX-License-Identifier: Apache-2.0
"""A newcomer can type what the README shows."""

import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from tests.fixtures import pages, shown
from tests.fixtures.commands import venv_of
from tools.services import packages

pytestmark = pytest.mark.embedded
PROGRAMS = pathlib.Path(sys.executable).parent


def blocks(program):
    """The blocks of the README with this program, as they are typed."""
    found = ['\n'.join(lines) for _, lines in shown.literal_blocks(shown.README)]
    return [text for text in found if re.search(rf'^{program} ', text, re.MULTILINE)]


@pytest.fixture
def directory(tmp_path):
    """Where ``make run`` runs, on another port."""
    process = subprocess.Popen(
        [PROGRAMS / 'cyborg-standalone', 'run', '--port', '0'],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        for line in process.stdout:
            if port := re.search(r'http://127\.0\.0\.1:(\d+)', line):
                break
        (tmp_path / 'port').write_text(port[1])
        (tmp_path / '.curlrc').write_text('fail-with-body\nsilent\nshow-error\n')
        yield tmp_path
    finally:
        process.send_signal(signal.SIGTERM)
        process.stdout.close()
        assert process.wait() == 0


def type_in(directory, text, path):
    port = (directory / 'port').read_text()
    environ = {'PATH': path, 'HOME': str(directory), 'LANG': 'C.UTF-8'}
    with pages.Shell(directory, environ) as shell:
        status, printed = shell.run(f'set -e\n{text.replace(":6666", f":{port}")}')
    assert status == 0, printed
    return printed


def test_a_request_is_made_with_curl(directory):
    packages.require('curl', 'curl')
    [text] = blocks('curl')
    printed = type_in(directory, text, os.environ['PATH'])
    assert '"devices"' in printed and '"name": "one-t4"' in printed
    assert '"device_profile_name": "one-t4"' in printed
    assert '"state": "Initial"' in printed


@pytest.mark.clients
def test_devices_are_listed_with_the_client(directory):
    [text] = blocks('openstack')
    # (other tests run a fork of the program: see forked_openstack)
    printed = type_in(directory, text, f'{venv_of("openstackclient")}/bin:{os.environ["PATH"]}')
    assert 'hostname' in printed
