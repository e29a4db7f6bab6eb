"""Uids: under them state is found again, so they must not change by chance."""

from __future__ import annotations


def same(row):
    return row


def uids(graph):
    return [operator.uid for vertex in graph.vertices.values() for operator in vertex.operators]


def test_derived_uids_say_after_what_and_are_numbered(plan, rows, discard):
    def pipeline(env):
        stream = env.from_source(rows(), name="Orders of today", uid="orders")
        stream.filter(same).filter(same).sink_to(discard())

    assert uids(plan(pipeline)) == ["orders", "orders.filter-same-1", "orders.filter-same-2", "orders.discard-1"]


def test_without_any_given_uid_names_alone_make_them(plan, rows, discard):
    def pipeline(env):
        env.from_source(rows(), name="Orders of today").map_in_arrow(same).sink_to(discard())

    assert uids(plan(pipeline)) == ["orders-of-today-1", "map-in-arrow-same-1", "discard-1"]


def test_a_change_in_one_branch_leaves_the_uids_of_another(plan, rows, discard):
    def pipeline(env, more):
        one = env.from_source(rows(), name="one", uid="one")
        two = env.from_source(rows(), name="two", uid="two")
        if more:
            one = one.filter(same)
        one.filter(same).sink_to(discard(), uid="one-out")
        two.filter(same).sink_to(discard(), uid="two-out")

    before = uids(plan(lambda env: pipeline(env, False)))
    after = uids(plan(lambda env: pipeline(env, True)))
    assert set(before) < set(after) and "two.filter-same-1" in before


def test_a_derived_uid_makes_way_for_a_given_one(plan, rows, discard):
    def pipeline(env):
        stream = env.from_source(rows(), name="orders", uid="orders")
        stream.filter(same).filter(same).uid("orders.filter-same-1").sink_to(discard(), uid="out")

    assert uids(plan(pipeline)) == ["orders", "orders.filter-same-2", "orders.filter-same-1", "out"]


def test_two_operators_with_one_uid_are_refused_with_both_lines(problems, rows, discard):
    def pipeline(env):
        stream = env.from_source(rows(), name="orders", uid="orders")
        stream.filter(same).name("good ones").uid("orders").sink_to(discard(), uid="out")

    (problem,) = problems(pipeline)
    assert "test_uids.py" in problem and "'good ones'" in problem
    assert "uid 'orders' is also that of 'orders' at" in problem and "each operator needs its own" in problem


def test_a_uid_that_cannot_be_a_path_is_refused(problems, rows, discard):
    (problem,) = problems(lambda env: env.from_source(rows(), uid="a/b").sink_to(discard(), uid="out"))
    assert "uid 'a/b' is not allowed" in problem and "letters" in problem


def test_state_without_a_uid_is_a_warning_that_tells_the_derived_one(plan, rows, transactional):
    def pipeline(env):
        env.from_source(rows(), name="orders").filter(same).sink_to(transactional(), uid="out")

    (warning,) = plan(pipeline).warnings
    assert "test_uids.py" in warning and "'orders'" in warning
    assert "keeps state but has no uid" in warning and "'orders-1'" in warning
