from streamingjob_operator import naming

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


def test_names_of_the_longest_job_fit_where_they_are_used():
    job = "a" * 45
    names = [
        naming.stored_spec_name(job, "0123456789"),
        naming.driver_pod_name(job, 99_999_999),
        naming.planner_pod_name(job, "0123456789"),
        naming.cleaner_pod_name(job, "01234567-89ab"),
        naming.driver_service_name(job),
        naming.secret_name(job),
    ]
    assert all(len(name) <= 63 for name in names)
