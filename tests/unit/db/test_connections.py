# SPDX-License-Identifier: Apache-2.0
import gc
import weakref

import sqlalchemy as sa

from cyborg.db.sqlalchemy import engine


def test_the_connections_of_a_database_that_nobody_uses_are_closed(tmp_path):
    database, closed = engine.Database(f'sqlite:///{tmp_path}/cyborg.db'), []
    sa.event.listen(database.engine, 'close', lambda *_: closed.append(True))
    with database.reader() as session:
        session.execute(sa.text('SELECT 1'))
    assert not closed
    del database
    assert closed


def test_a_closed_database_goes_although_a_listener_of_its_engine_refers_to_it(tmp_path):
    database = engine.Database(f'sqlite:///{tmp_path}/cyborg.db')
    sa.event.listen(database.engine, 'connect', lambda *_, owner=database: owner)
    remembered = weakref.ref(database)
    database.close()
    del database
    gc.collect()
    assert remembered() is None
