# SPDX-License-Identifier: Apache-2.0
"""The stand-in for Glance of a standalone: what it keeps."""

import contextlib
import errno
import pathlib

import pytest

from cyborg.workbench.images import Images

NAME = '5d0e2ab1-3f5c-4b7e-9a35-0b1c7c2d9f10'


@contextlib.contextmanager
def running(directory):
    images = Images(directory)
    images.start()
    yield images
    images.stop()


@pytest.fixture
def images(tmp_path):
    """With one image."""
    with running(tmp_path) as images:
        images.create(NAME, {'name': 'gzip'})
        images.upload(NAME, b'bits')
        yield images


def kept(directory):
    """The names and data that are there after a restart."""
    with running(directory) as images:
        return {each['name']: images.data[name] for name, each in images.images.items()}


def test_images_are_there_after_a_restart(images, tmp_path):
    assert kept(tmp_path) == {'gzip': b'bits'}


def test_a_file_that_cannot_be_read_is_named_and_left_out(images, tmp_path, caplog):
    (tmp_path / 'broken.json').write_text('{')
    assert kept(tmp_path) == {'gzip': b'bits'}
    assert f'{tmp_path}/broken.json cannot be read' in caplog.text


def test_a_full_disk_does_not_spoil_what_was_kept(images, tmp_path, monkeypatch):
    def write_nothing(path, content):
        path.touch()
        raise OSError(errno.ENOSPC, 'No space left on device')

    with monkeypatch.context() as patched, pytest.raises(OSError, match='No space'):
        patched.setattr(pathlib.Path, 'write_bytes', write_nothing)
        images.upload(NAME, b'other bits')
    assert kept(tmp_path) == {'gzip': b'bits'}
