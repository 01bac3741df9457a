# SPDX-License-Identifier: Apache-2.0
"""Messages of errors are stored and sent."""

import pytest

from cyborg import errors


@pytest.mark.parametrize('character', ['\0', '\ud800', '\udc80', '\udfff'])
def test_characters_that_a_database_refuses_are_replaced_in_messages(character):
    error = errors.DriverFailed(name='x', why=f'{character}!')
    assert error.faultstring == 'Driver x failed: \ufffd!'
    assert error.faultstring.encode()
