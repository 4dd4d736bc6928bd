"""The HTML report in a real browser: it shows what it should, asks for nothing, runs nothing of the snapshot, and needs no mouse."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import browser
import synthetic_history as synthetic
from browser import ALT, SHIFT, Browser
from recorded import SNAPSHOTS
from tonnage import _lib
from tonnage.errors import LibraryError

EVIL = "</script><img src=x onerror=\"document.title='hacked'\"><script>document.title='hacked'</script>{{data}}\u202e"


@pytest.fixture(scope="module", autouse=True)
def needed() -> None:
    if not browser.find():
        pytest.skip("no Chromium here (set CHROMIUM)")
    try:
        _lib.library()
    except LibraryError as error:
        pytest.skip(str(error))


def page_of(snapshot: dict[str, Any], folder: Path, name: str = "page", **options: Any) -> Path:
    pickled, page = folder / f"{name}.pickle", folder / f"{name}.html"
    pickled.write_bytes(pickle.dumps(snapshot, protocol=4))
    _lib.report_html_save(_lib.Trace.load_snapshot(pickled), page, name=options.pop("title", f"{name}.pickle"), **options)
    return page


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("html")


@pytest.fixture(scope="module")
def training_page(folder) -> Path:
    return page_of(synthetic.training(40_000), folder, "training")


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    with Browser() as one:
        yield one


@pytest.fixture
def shown(chrome, training_page) -> Browser:
    chrome.console.clear()
    chrome.requests.clear()
    chrome.open(training_page)
    chrome.settle()
    return chrome


def value(page: Browser) -> int:
    return int(page.run("document.querySelector('#timeline').getAttribute('aria-valuenow')"))


def painted(page: Browser, canvas: str) -> int:
    """Different colours on a canvas."""
    return page.run(
        f"(() => {{ const c = document.querySelector('{canvas}'), copy = document.createElement('canvas'), seen = new Set();"
        "copy.width = c.width; copy.height = c.height; const pen = copy.getContext('2d', {willReadFrequently: true});"
        "pen.drawImage(c, 0, 0); const d = pen.getImageData(0, 0, c.width, c.height).data;"
        "for (let i = 0; i < d.length; i += 4) if (d[i + 3] === 255) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return seen.size; })()"
    )


def test_it_shows_and_asks_for_nothing(shown):
    assert shown.console == []
    assert [url for url in shown.requests if not url.startswith("file:")] == []
    assert len(shown.requests) == 0
    assert painted(shown, "#areas") > 5
    assert painted(shown, "#map-canvas") > 2
    assert "GiB" in shown.run("document.querySelector('#figures').textContent")
    assert shown.run("document.title") == "training.pickle – Tonnage"
    assert "LEAK" in shown.run("document.querySelector('#findings').textContent")


def test_sums_are_those_of_the_file(shown):
    """Unpacked in the browser, the end of the history holds what the final segments hold."""
    shown.run("tonnage.momentSet(tonnage.device.entries)")
    shown.settle()
    sums = shown.run("({allocated: tonnage.sums.allocated, reserved: tonnage.sums.reserved, requested: tonnage.sums.requested})")
    end = shown.run("tonnage.device.levels.end")
    assert {name: end[name] for name in sums} == sums
    peak = shown.run("(() => { tonnage.momentSet(tonnage.device.levels.peak.moment); tonnage.momentShow(); return tonnage.sums.allocated; })()")
    assert peak == shown.run("tonnage.device.levels.peak.allocated")


def test_every_level_keeps_the_peak(shown):
    """Coarser columns are sums of finer ones: at any zoom the highest column is the highest moment, and its layers add up."""
    peak = shown.run("tonnage.device.levels.peak.allocated")
    for by in ("category", "stack"):
        for width in (1, 7, 100, 1000, 20000):
            columns = f"tonnage.timeline.columns(0, tonnage.device.entries + 1, {width}, tonnage.layers, tonnage.history)"
            shown.run(f"tonnage.layersSet('{by}')")
            assert shown.run(f"Math.max(...{columns}.total)") == peak
            assert shown.run(f"(c => c.total.every((all, i) => Math.abs(c.layers.reduce((sum, layer) => sum + layer[i], 0) - all) < 1))({columns})")


def test_exact_columns_agree_with_the_buckets(shown):
    """The columns made of single changes are the same as the buckets that were summed before."""
    script = """(() => {
      const {timeline, layers, history, device} = tonnage, wrong = [];
      const level = timeline.levelColumns(timeline.base, 4000, 6000, layers);
      for (let i = 0; i < level.count; i++) {
        const one = exactColumns(history, level.edges[i], level.edges[i + 1], 1, layers);
        for (const name of ["total", "low", "reserved", "highest"]) if (one[name][0] !== level[name][i]) wrong.push([name, i, one[name][0], level[name][i]]);
        level.layers.forEach((layer, k) => { if (one.layers[k][0] !== layer[i]) wrong.push([k, i]); });
      }
      return wrong.slice(0, 5);
    })()"""
    for by in ("category", "stack"):
        shown.run(f"tonnage.layersSet('{by}')")
        assert shown.run(script) == []


def test_keys_move_the_moment_and_the_range(shown):
    shown.run("document.querySelector('#timeline').focus()")
    shown.key("Home")
    assert value(shown) == 0
    shown.key("ArrowRight")
    first = value(shown)
    assert first > 0
    shown.key("ArrowRight", ALT)
    assert value(shown) == first + 1
    shown.key("ArrowRight", SHIFT)
    assert value(shown) > first + 1000
    shown.key("End")
    assert value(shown) == shown.run("tonnage.device.entries")
    shown.key("p")
    assert value(shown) == shown.run("tonnage.device.levels.peak.moment")
    for _ in range(6):
        shown.key("+")
    shown.settle()
    near = shown.run("tonnage.view.to - tonnage.view.from")
    assert near < shown.run("tonnage.view.full") / 30
    before = shown.run("tonnage.view.from")
    shown.key("PageUp")
    assert shown.run("tonnage.view.from") < before
    shown.key("0")
    assert shown.run("tonnage.view.isAll")
    assert shown.console == []


def test_everything_can_be_reached_by_tab(shown):
    shown.run("window.scrollTo(0, 0); document.activeElement.blur()")
    seen = []
    for _ in range(80):
        shown.key("Tab")
        seen.append(shown.run("document.activeElement.id || document.activeElement.name || document.activeElement.textContent.slice(0, 20)"))
        assert shown.run("""(e => e === document.body || [e, e.nextElementSibling || e].some(x => getComputedStyle(x).outlineStyle !== 'none'))(
          document.activeElement)"""), seen[-1]
    for wanted in ("theme", "by", "axis", "zoom-in", "timeline", "range", "search", "map-handle"):
        assert wanted in seen, (wanted, seen)


def test_what_a_screen_reader_is_told(shown):
    """Names, roles and values of the accessibility tree."""
    nodes = shown.call("Accessibility.getFullAXTree")["nodes"]
    tree = [(n["role"]["value"], n.get("name", {}).get("value", ""), n.get("value", {}).get("value")) for n in nodes if not n["ignored"]]
    sliders = {name: told for role, name, told in tree if role == "slider"}
    assert set(sliders) == {"Moment in time", "Range shown"}
    assert re.match(r"entry [\d,]+, .* GiB allocated, .* reserved", shown.run("document.querySelector('#timeline').getAttribute('aria-valuetext')"))
    assert not [role for role, name, _ in tree if role in ("button", "link", "combobox", "radio", "searchbox", "slider") and not name.strip()]
    headings = [name for role, name, _ in tree if role == "heading"]
    assert {"Memory over time", "Findings", "Segments", "Where reserved memory is"} <= set(headings)


def test_the_picture_as_a_table(shown):
    shown.run("document.querySelector('#table-details').open = true")
    shown.settle()
    rows = shown.run("[...document.querySelectorAll('#table tbody tr')].map(row => row.cells.length)")
    head = shown.run("document.querySelectorAll('#table thead th').length")
    assert len(rows) > 20 and set(rows) == {head}
    moment = shown.run("(() => { const button = document.querySelectorAll('#table tbody button')[3]; button.click(); return button.textContent; })()")
    assert f"{value(shown):,}" in moment


def test_search_marks_and_filters(shown):
    shown.run("document.querySelector('#search').focus()")
    shown.type("GELU")
    shown.wait("tonnage.matches !== null && document.querySelector('#by-stack-title').textContent.includes('GELU')")
    labels = shown.run("[...document.querySelectorAll('#by-stack th')].map(cell => cell.textContent).filter(text => text.includes(':'))")
    assert labels and all("gelu" in label.lower() for label in labels)
    held = "Math.max(...tonnage.marked.levels[0])"
    assert 0 < shown.run(held) < shown.run("tonnage.device.levels.peak.allocated")
    shown.key("Escape")
    assert shown.run("tonnage.marked === null")


def test_a_click_on_a_finding_moves_the_view(shown):
    shown.run("tonnage.view.set(10, 500); tonnage.dirty('chart')")
    shown.settle()
    index = shown.run("tonnage.device.findings.findIndex(f => f.moment !== null)")
    shown.run(f"[...document.querySelectorAll('.finding')][{index}].querySelector('button').click()")
    shown.settle()
    moment = shown.run(f"tonnage.device.findings[{index}].moment")
    assert value(shown) == moment
    assert shown.run("document.activeElement.id") in ("timeline", "map-handle")
    assert shown.run("tonnage.view.from") <= moment <= shown.run("tonnage.view.to")


def test_mouse_drag_wheel_and_click(shown):
    shown.run("document.querySelector('#chart').scrollIntoView({block: 'center'})")
    shown.settle()
    box = shown.box("#chart")
    y, left, right = box["y"] + 150, box["x"] + 300, box["x"] + 500
    shown.mouse("mousePressed", left, y, button="left", clickCount=1)
    for x in range(int(left), int(right) + 1, 20):
        shown.mouse("mouseMoved", x, y, button="left", buttons=1)
    shown.mouse("mouseReleased", right, y, button="left", clickCount=1)
    shown.settle()
    width = shown.run("tonnage.view.to - tonnage.view.from")
    assert 0.1 < width / shown.run("tonnage.view.full") < 0.35
    shown.run("document.querySelector('#timeline').focus()")
    shown.mouse("mouseWheel", (left + right) / 2, y, deltaX=0, deltaY=-200)
    shown.settle()
    assert shown.run("tonnage.view.to - tonnage.view.from") < width
    shown.click(left, y)
    shown.settle()
    assert abs(shown.run("tonnage.view.place(tonnage.moment)") - shown.run(f"tonnage.chart.placeAt({left - box['x']})")) < width / 20
    assert "allocated" in shown.run("document.querySelector('#tip').textContent")


def test_the_segment_map_by_keys(shown):
    shown.run("tonnage.map.select(-1); document.querySelector('#map-handle').focus()")
    texts = []
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "End", "ArrowLeft"):
        shown.key(key)
        texts.append(shown.run("document.querySelector('#block').textContent"))
    assert all("Segment" in text for text in texts)
    assert len(set(texts)) > 3
    tiled = """tonnage.map.segments.every((s, i) => {
      const cells = tonnage.map.cells; let at = s.address;
      for (let c = s.first; c < s.last; c++) { if (cells.address[c] !== at) return false; at += cells.bytes[c]; }
      return at === s.address + s.bytes; })"""
    for moment in (0, 500, 9_999, 25_000, 40_000):
        shown.run(f"tonnage.momentSet({moment}); tonnage.momentShow()")
        assert shown.run(tiled)
        drawn = shown.run("tonnage.map.layout.runs.reduce((all, run) => all + run.to - run.from, 0)")
        assert abs(drawn - shown.run("tonnage.map.segments.reduce((all, s) => all + s.bytes, 0)")) < 1000


def test_light_dark_and_narrow(shown):
    grounds = {}
    for scheme in ("light", "dark"):
        shown.prefer(color_scheme=scheme)
        shown.settle()
        grounds[scheme] = shown.run("getComputedStyle(document.documentElement).backgroundColor")
    assert grounds["light"] != grounds["dark"]
    shown.run("(s => { s.value = 'light'; s.dispatchEvent(new Event('change')); })(document.querySelector('#theme'))")
    assert shown.run("getComputedStyle(document.documentElement).backgroundColor") == grounds["light"]
    try:
        for width in (320, 800, 1400):
            shown.resize(width, 900)
            shown.settle()
            assert shown.run("document.documentElement.scrollWidth") <= width, width
            assert painted(shown, "#areas") > 5
    finally:
        shown.resize(1400, 1000)
        shown.prefer()
    assert shown.console == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(shown, scheme):
    """4.5 to 1 for text (WCAG 2.2, 1.4.3), of each colour on each ground that it stands on."""
    shown.prefer(color_scheme=scheme)
    shown.settle()
    script = """(() => { const style = getComputedStyle(document.documentElement), get = name => style.getPropertyValue('--' + name).trim();
      const light = hex => [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16) / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
      const ratio = (a, b) => { const [x, y] = [light(get(a)), light(get(b))].sort((m, n) => n - m); return (x + 0.05) / (y + 0.05); };
      return [['text', 'surface'], ['text', 'page'], ['quiet', 'surface'], ['quiet', 'page'], ['quiet', 'code'],
        ['text', 'code'], ['accent', 'surface'], ['accent', 'page'], ['fault', 'fault-back'], ['waste', 'waste-back'], ['note', 'note-back'],
        ['surface', 'fault'], ['surface', 'waste'], ['surface', 'note'], ['surface', 'text']]
        .map(([a, b]) => [a, b, ratio(a, b)]); })()"""
    try:
        for front, ground, ratio in shown.run(script):
            assert ratio >= 4.5, (front, ground, ratio)
    finally:
        shown.prefer()


# ---- other files


def test_a_hostile_snapshot_runs_nothing(chrome, folder):
    """Every text that a snapshot and its name can bring tries to become markup, script or a link."""
    snapshot = synthetic.training(3_000, layers=4)
    lines = [{"name": EVIL, "filename": f"javascript:{EVIL}", "line": 7}]
    for entry in snapshot["device_traces"][0][::3]:
        entry["frames"] = lines
    snapshot["external_annotations"] = [{**one, "name": EVIL} for one in snapshot["external_annotations"]]
    snapshot["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] = EVIL
    page = page_of(snapshot, folder, "hostile", title=EVIL)
    chrome.console.clear()
    chrome.requests.clear()
    chrome.open(page)
    chrome.run("for (const details of document.querySelectorAll('details')) details.open = true")
    chrome.run("tonnage.layersSet('stack'); tonnage.stackChoose(tonnage.report.stacks.labels.findIndex(label => label && label.includes('onerror')))")
    chrome.run("tonnage.search('onerror'); tonnage.map.select(3)")
    chrome.settle()
    assert chrome.console == [] and chrome.requests == []
    assert chrome.run("document.title") != "hacked"
    assert chrome.run("document.querySelectorAll('img, iframe, object, embed, a[href]:not(.skip), link, script:not(#data)').length") == 1  # the viewer's own
    assert chrome.run("document.querySelector('#name').textContent") == EVIL
    assert "onerror" in chrome.run("document.querySelector('#by-stack').textContent")


def test_the_policy_refuses_what_is_not_the_viewers(chrome, training_page, folder):
    """Even if markup got in, it would not run."""
    text = training_page.read_text()
    bent = folder / "bent.html"
    hack = "document.title = 'hacked'"
    bent.write_text(text.replace("<noscript>", f'<script>{hack}</script><img src=nothing.png onerror="{hack}"><noscript>'))
    chrome.console.clear()
    chrome.requests.clear()
    chrome.open(bent)
    assert chrome.run("document.title") == "training.pickle – Tonnage"
    assert len([line for line in chrome.console if "Content Security Policy" in line]) >= 2
    assert chrome.run("fetch('data:text/plain,x').then(() => 'loaded', () => 'refused')") == "refused"
    for sink in ("document.body.innerHTML = '<b>x</b>'", "document.body.setAttribute('onclick', 'x')", "document.createElement('script').text = 'x'"):
        assert chrome.run(f"(() => {{ try {{ {sink}; return 'taken'; }} catch (error) {{ return error.name; }} }})()") == "TypeError", sink


@pytest.mark.parametrize(
    "name",
    ["recorded__oom_retry__split64", "recorded__stress_streams__default", "recorded__stress__expandable", "recorded__graph__default",
     "recorded__mempool__default", "public__gpt_medium_train_ctx512_torch211", "public__two_gpu_state_a_torch21"],
)  # fmt: skip
def test_recorded_snapshots(chrome, folder, name):
    """What the browser unpacks is what the analysis counted, at the peaks and at the end; every block lies in a segment."""
    path = SNAPSHOTS / f"{name}.pickle.gz"
    if not path.exists():
        pytest.skip(f"{path.name} is not there")
    page = folder / f"{name}.html"
    _lib.report_html_save(_lib.Trace.load_snapshot(path), page, name=name)
    chrome.console.clear()
    chrome.open(page)
    script = """(() => tonnage.report.devices.flatMap((device, i) => {
      tonnage.deviceSet(i);
      tonnage.historyRead();
      return Object.values(device.levels).flatMap(level => {
        tonnage.momentSet(level.moment);
        tonnage.momentShow();
        const wrong = Object.keys(level).filter(key => key !== "moment" && tonnage.sums[key] !== level[key]);
        if (tonnage.map.segments.some(segment => segment.isStray)) wrong.push("stray");
        return wrong.map(key => [i, level.moment, key, tonnage.sums[key], level[key]]);
      });
    }))()"""
    assert chrome.run(script) == []
    chrome.settle()
    assert chrome.console == []


def test_two_devices(chrome, folder):
    first, second = synthetic.Run(device=0), synthetic.Run(device=1)
    for run, size in ((first, 30 << 20), (second, 70 << 20)):
        for i in range(20):
            run.alloc(i, size + 512 * i, synthetic.frames([("main", "train.py", 10 + i)]))
    one, two = first.snapshot(), second.snapshot()
    snapshot = {**one, "segments": one["segments"] + two["segments"], "device_traces": [first.entries, second.entries]}
    chrome.console.clear()
    chrome.open(page_of(snapshot, folder, "two"))
    assert chrome.run("document.querySelector('#device').options.length") == 2
    assert chrome.run("tonnage.device.index") == 1  # the one with the higher peak comes first
    # What is drawn before the other device's history has been read must not ask for it: a frame fell in between, seldom.
    chrome.run("(s => { s.value = '0'; s.dispatchEvent(new Event('change')); })(document.querySelector('#device')); tonnage.dirty('map'); tonnage.draw()")
    chrome.run("document.querySelector('#map-handle').dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' }))")
    chrome.settle()
    assert chrome.run("tonnage.sums.allocated") == chrome.run("tonnage.report.devices[0].levels.peak.allocated")
    assert chrome.console == []


def test_thinned_out_it_says_so(chrome, folder):
    page = page_of(synthetic.training(60_000, varied=True), folder, "thin", history_bytes_max=60_000)
    chrome.console.clear()
    chrome.open(page)
    assert chrome.run("tonnage.device.changes.grid") > 0
    assert "net change of every" in chrome.run("document.querySelector('#notes').textContent")
    chrome.run("tonnage.momentSet(20_011); tonnage.momentShow()")
    assert "thinned out" in chrome.run("document.querySelector('#moment-line').textContent")
    peak = "tonnage.momentSet(tonnage.device.levels.peak.moment); tonnage.momentShow(); tonnage.sums.allocated"
    assert chrome.run(peak) == chrome.run("tonnage.device.levels.peak.allocated")
    assert chrome.console == []


def test_a_state_without_a_history(chrome, folder):
    snapshot = synthetic.training(2_000, layers=4)
    snapshot["device_traces"] = [[]]
    chrome.console.clear()
    chrome.open(page_of(snapshot, folder, "state"))
    chrome.settle()
    assert chrome.run("tonnage.sums.allocated") == chrome.run("tonnage.device.levels.end.allocated") > 0
    assert "no history" in chrome.run("document.querySelector('#notes').textContent")
    assert chrome.console == []


def test_without_scripts_it_says_why_it_is_empty(training_page):
    text = training_page.read_text()
    assert "<noscript>" in text and "default-src 'none'" in text
    assert not re.search(r"https?://", text.split('id="data"')[0] + text.split("</script>")[-2])
