# SPDX-License-Identifier: Apache-2.0
"""It is not forgotten that the flash of a card was written."""

import pathlib
import types

import pytest

from cyborg.accelerator.fpga_flash import FlashRecord
from cyborg.accelerator.sysfs import Sysfs

CARD = types.SimpleNamespace(address='0000:5e:00.0', device='09c4')


@pytest.fixture
def make(tmp_path):
    """A record as an agent makes it when it starts."""
    (tmp_path / 'state').mkdir()
    return lambda: FlashRecord(tmp_path / 'state', Sysfs(tmp_path))


def test_a_restart_of_the_agent_does_not_forget_it(make):
    make().note(CARD, 'old')
    assert 'switch the host off and on' in make().pending(CARD, 'old')
    assert make().pending(CARD, 'new') is None


def test_an_agent_that_is_killed_while_it_writes_leaves_the_last_record(make, monkeypatch):
    make().note(CARD, 'old')

    def die(path, text):
        path.write_bytes(text[:5].encode())
        raise KeyboardInterrupt

    monkeypatch.setattr(pathlib.Path, 'write_text', die)
    with pytest.raises(KeyboardInterrupt):
        make().note(CARD, 'old')
    assert make().pending(CARD, 'old') is not None


def test_what_cannot_be_stored_counts_more_than_an_old_record(make, monkeypatch):
    make().note(CARD, 'old')
    record = make()

    def refuse(path, text):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(pathlib.Path, 'write_text', refuse)
    record.note(CARD, 'new')
    assert record.pending(CARD, 'new') is not None
