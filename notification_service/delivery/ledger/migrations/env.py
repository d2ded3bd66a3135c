"""What Alembic runs: the versions that are missing, in the transaction of the given connection."""

from alembic import context

from notification_service.delivery.ledger.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
