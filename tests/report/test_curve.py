"""The picture: a readable PNG for any stage a campaign may be in."""

import base64
import struct

from cuda_agent.report.curve import curve_data_uri, curve_png, write_curve
from cuda_agent.report.summary import campaign_summary
from cuda_agent.store.tables import Campaign


def size(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG")
    return struct.unpack(">II", png[16:24])


def test_a_campaign_becomes_a_wide_png(store, quickstart, tmp_path):
    target = tmp_path / "made" / "curve.png"
    write_curve(campaign_summary(store), target)
    width, height = size(target.read_bytes())
    assert width > 1500 and height > 500
    assert [path.name for path in target.parent.iterdir()] == ["curve.png"]


def test_a_campaign_that_just_began_still_has_a_picture(store):
    with store.session() as session:
        session.add(Campaign(name="new", config={}))
    assert size(curve_png(campaign_summary(store)))[0] > 1500


def test_policies_without_any_episode_are_left_out(store, begin):
    rows = begin()
    rows.evaluated("base", rows.policy("base"), 0.5, 0.5, samples=0)
    assert size(curve_png(campaign_summary(store)))[0] > 1500


def test_the_picture_for_a_page_is_small(store, quickstart):
    address = curve_data_uri(campaign_summary(store))
    kind, data = address.split(",")
    assert kind == "data:image/png;base64"
    assert size(base64.b64decode(data)) == (1300, 450)
    assert len(address) < 60_000
