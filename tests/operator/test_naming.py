from streamingjob_operator import naming

UID = "01234567-89ab"
SPEC = {"pipeline": {"entrypoint": "a:b"}, "parallelism": 2}


def test_what_takes_effect_without_a_restart_does_not_change_the_hash():
    live = {"state": "Suspended", "restartNonce": 4, "upgradeMode": "LastState", "deletionPolicy": "Delete"}
    assert naming.spec_hash({**SPEC, **live}) == naming.spec_hash(SPEC)
    assert naming.spec_hash({**SPEC, "recovery": {"progressWindow": "1h"}}) == naming.spec_hash(SPEC)


def test_what_needs_a_restart_changes_the_hash():
    assert naming.spec_hash({**SPEC, "parallelism": 3}) != naming.spec_hash(SPEC)
    assert naming.spec_hash({**SPEC, "recovery": {"strategy": "All"}}) != naming.spec_hash(SPEC)


def test_the_order_of_fields_and_empty_blocks_do_not_matter():
    reordered = {"parallelism": 2, "driver": {}, "pipeline": {"entrypoint": "a:b"}}
    assert naming.spec_hash(reordered) == naming.spec_hash(SPEC)


def test_what_pods_mount_is_not_called_as_a_former_jobs_of_the_same_name():
    """A node that still has one of its pods may give a new pod what it remembers under that name."""
    former, now = "01234567-89ab", "76543210-89ab"
    assert naming.secret_name("orders", former) != naming.secret_name("orders", now)
    assert naming.stored_spec_name("orders", former, "0123456789") != naming.stored_spec_name(
        "orders", now, "0123456789"
    )


def test_names_of_the_longest_job_fit_where_they_are_used():
    job = "a" * 45
    names = [
        naming.stored_spec_name(job, UID, "0123456789"),
        naming.driver_pod_name(job, 99_999_999),
        naming.planner_pod_name(job, "0123456789"),
        naming.cleaner_pod_name(job, UID),
        naming.driver_service_name(job),
        naming.secret_name(job, UID),
    ]
    assert all(len(name) <= 63 for name in names[1:])
    assert len(names[0]) <= 253, "a ConfigMap's name is no label"


def test_what_the_pipeline_is_given_counts_to_the_letter():
    """An empty filter is not the same as none."""

    def hashed(args):
        return naming.spec_hash({"pipeline": {"entrypoint": "a:b", "args": args}})

    given = [{}, {"filter": {}}, {"filter": None}, {"filter": {"a": None}}]
    assert len({hashed(args) for args in given}) == len(given)
    assert hashed({}) == naming.spec_hash({"pipeline": {"entrypoint": "a:b"}})
