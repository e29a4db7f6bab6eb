from snapshot_engine.protocol.committables import Lineage


def test_every_snapshot_lists_all_that_is_not_known_to_be_committed():
    lineage = Lineage()
    lineage.prepared(1, ["a"])
    lineage.prepared(2, ["b"])
    assert lineage.listed() == ["a", "b"]


def test_an_abort_drops_nothing():
    lineage = Lineage()
    lineage.prepared(1, ["a"])
    lineage.aborted(1)
    lineage.prepared(2, ["b"])
    assert lineage.listed() == ["a", "b"]


def test_a_completed_checkpoint_has_committed_everything_up_to_it():
    lineage = Lineage(["r"], checkpoint=4)
    lineage.prepared(5, ["a"])
    lineage.prepared(6, ["b"])
    lineage.completed(5)
    assert lineage.listed() == ["b"]


def test_a_restored_list_is_named_again_until_it_is_known_to_be_committed():
    lineage = Lineage(["r"], checkpoint=4)
    lineage.prepared(5, ["a"])
    assert lineage.listed() == ["r", "a"]
