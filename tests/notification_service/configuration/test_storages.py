"""The table of storages."""

import pytest

from notification_service.configuration.sections import StorageType
from notification_service.configuration.storages import ARCHIVABLE, DURABLE, STORAGES, kind_named, storage_kind

N = "payment-status-notification"
R = f"{N}.resequencer"


def test_each_storage_has_its_row():
    assert set(STORAGES) == set(StorageType)
    assert DURABLE == ("embedded", "redis", "infinispan")
    assert ARCHIVABLE == ("none", "embedded")


def test_the_other_name_of_a_storage_means_the_same_row():
    assert kind_named("cache") is kind_named("infinispan") is STORAGES[StorageType.INFINISPAN]


@pytest.mark.parametrize("name", StorageType)
def test_a_row_agrees_with_the_storage_that_it_makes(loaded, tmp_path, name):
    configuration = loaded(f'{R}.storage-type = {name}\n{N}.run-directory = "{tmp_path}/run"')
    kind = storage_kind(configuration)
    storage = kind.make(configuration, str)
    assert storage.is_durable is kind.is_durable
    storage.close()
    assert kind.name(configuration).split()[0] == name
    assert (kind.open_view is None) is not kind.is_durable
