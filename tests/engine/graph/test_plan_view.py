"""The plan as text, JSON, DOT and SVG."""

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from snapshot_engine.graph.layered_layout import place
from snapshot_engine.graph.plan_dot import plan_as_dot
from snapshot_engine.graph.plan_svg import plan_as_svg
from snapshot_engine.graph.plan_text import plan_as_text
from snapshot_engine.graph.plan_view import most_committed_hops, view_of

SVG = "{http://www.w3.org/2000/svg}"


def same(row):
    return row


@pytest.fixture
def shop(plan, rows, discard):
    """A job with a side branch, a committed hash edge and a forward one."""

    def pipeline(env):
        orders = env.from_source(rows(), name="orders", uid="orders")
        orders.sink_to(discard(), name="raw <all>", uid="raw")
        keyed = orders.exchange("committed").key_by("city")
        keyed.map_in_arrow(same).name("count").uid("count").sink_to(discard(), name="out", uid="out")

    graph = plan(pipeline, parallelism=2, job="shop")
    return replace(graph, options={"checkpoint_interval": 10.0})


def test_text_has_vertices_edges_and_regions(shop):
    text = plan_as_text(view_of(shop))
    assert text.startswith("job shop: 3 vertices, 4 regions, 4 slots, 128 key groups")
    assert "orders ×2 (source)" in text and "[state]" in text and "test_plan_view.py:" in text
    assert "orders -> raw: forward, pipelined" in text
    assert "orders -> count: hash by city, committed; cuts regions, adds up to one checkpoint interval (10s)" in text
    assert "regions 0-1: orders[i], raw[i]; 1 slot each" in text
    assert "regions 2-3: count[i]; 1 slot each" in text
    assert "cut by the committed exchange orders -> count, adds up to one checkpoint interval (10s)" in text
    assert "latency added by exchanges: 1 committed hop: up to 1 checkpoint interval (10s)" in text
    assert "this sink is not" not in text


def test_one_region_of_several_slots(graph_of):
    text = plan_as_text(view_of(graph_of({"a": 2, "b": 3}, ["a hash b"])))
    assert "region 0: a[0-1], b[0-2]; 3 slots" in text


def test_regions_that_are_not_numbered_in_a_row_are_listed(graph_of):
    text = plan_as_text(view_of(graph_of({"a": 2, "b": 1, "c": 2}, ["a hash b memory", "b hash c memory"])))
    assert "regions 0-1: a[i]" in text and "region 2: b[0]" in text and "regions 3-4: c[i]" in text


def test_blocking_exchanges_say_when_their_consumer_starts(graph_of):
    text = plan_as_text(view_of(graph_of({"a": 1, "b": 1}, ["a hash b blocking"])))
    assert "adds the time until the producer has ended" in text


def test_the_latency_of_a_path_is_that_of_all_its_committed_hops(graph_of):
    graph = graph_of(
        dict.fromkeys("abcd", 1),
        ["a hash b committed", "b hash c committed", "a hash d committed", "c forward d"],
    )
    assert most_committed_hops(graph) == 2
    assert view_of(graph).latency == "2 committed hops: up to 2 checkpoint intervals"


def test_json_is_plain_json(shop):
    document = json.loads(json.dumps(view_of(shop).to_json()))
    assert document["job"] == "shop" and document["slots"] == 4
    assert [vertex["uid"] for vertex in document["vertices"]] == ["orders", "raw", "count"]
    (cut,) = [edge for edge in document["edges"] if edge["cuts"]]
    assert cut["exchange"] == "committed" and cut["keys"] == ["city"] and "10s" in cut["latency"]
    assert [group["regions"] for group in document["groups"]] == [[0, 1], [2, 3]]
    assert document["groups"][1]["cut_by"] == [cut["id"]]
    assert len(document["warnings"]) == 2 and "this sink is not" in document["warnings"][0]


def test_dot_has_a_cluster_per_group_of_regions_and_quotes_names(shop):
    dot = plan_as_dot(view_of(shop))
    assert dot.startswith('digraph "shop" {') and dot.rstrip().endswith("}")
    assert dot.count("subgraph cluster_") == 2
    assert '"orders" -> "count" [label="hash city\\ncommitted", style=dashed];' in dot
    assert '"orders" -> "raw" [label="forward", style=solid];' in dot
    assert "raw <all>" in dot


def test_svg_is_a_picture_of_all_vertices_and_edges(shop):
    root = ElementTree.fromstring(plan_as_svg(view_of(shop)))
    texts = ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]
    assert {"orders ×2", "count ×2", "raw <all>", "committed"} <= set(texts)
    assert len(root.findall(f"{SVG}path")) == 2
    dashed = [path for path in root.findall(f"{SVG}path") if path.get("stroke-dasharray")]
    assert len(dashed) == 1


def test_a_loop_is_drawn(graph_of):
    graph = graph_of({"a": 1, "b": 1}, ["a hash b", "b hash a feedback"])
    assert "feedback" in plan_as_text(view_of(graph))
    assert "feedback" in plan_as_svg(view_of(graph))


def test_boxes_never_overlap_and_flow_to_the_right():
    sizes = {name: (100.0 + 10 * index, 40.0 + 5 * index) for index, name in enumerate("abcdefg")}
    arcs = [("a", "c"), ("b", "c"), ("c", "d"), ("c", "e"), ("a", "e"), ("d", "f"), ("e", "f"), ("b", "g")]
    boxes = place(sizes, arcs).boxes
    for start, end in arcs:
        assert boxes[start].x + boxes[start].width < boxes[end].x
    for one in sizes:
        for other in sizes:
            if one < other:
                a, b = boxes[one], boxes[other]
                apart = a.x + a.width <= b.x or b.x + b.width <= a.x
                assert apart or a.y + a.height <= b.y or b.y + b.height <= a.y


def test_boxes_are_ordered_so_that_parallel_branches_do_not_cross():
    boxes = place(dict.fromkeys("abcd", (100.0, 40.0)), [("a", "d"), ("b", "c")]).boxes
    assert (boxes["a"].y < boxes["b"].y) == (boxes["d"].y < boxes["c"].y)


def test_an_arc_over_several_layers_has_a_way_between_the_boxes():
    layout = place(dict.fromkeys("abcd", (100.0, 40.0)), [("a", "b"), ("b", "c"), ("a", "c"), ("d", "b")])
    (passage,) = layout.detours["a", "c"]
    other = layout.boxes["b"]
    assert (passage.x, passage.width) == (other.x, other.width)
    assert passage.y + passage.height <= other.y or other.y + other.height <= passage.y
