"""Device profiles: found by name, measured on the CPU, written whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tonnage import errors, profile

REQUIRED = {
    "name", "total_bytes", "context_bytes", "flops_per_s", "bytes_per_s", "host_copy_bytes_per_s", "launch_s", "host_op_s",
    "host_rebuild_s", "cublas_workspace_bytes", "source",
}  # fmt: skip


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TONNAGE_PROFILES", raising=False)
    return tmp_path / "tonnage" / "profiles"


def assert_complete(found: dict[str, object]) -> None:
    assert set(found) >= REQUIRED
    rates = found["flops_per_s"]
    assert isinstance(rates, dict) and set(rates) == set(profile.RATES)
    assert all(rate > 0 for rate in rates.values())


@pytest.mark.parametrize("path", sorted(profile.SHIPPED.glob("*.json")), ids=lambda path: path.stem)
def test_shipped_profile_is_complete(path: Path) -> None:
    found = json.loads(path.read_text())
    assert_complete(found)
    assert found["name"] == path.stem
    if found["name"] != "cpu":
        assert len(found["capability"]) == 2 and found["multiprocessors"] > 0


def test_a_datasheet_is_not_called_a_measurement() -> None:
    for path in profile.SHIPPED.glob("*.json"):
        source = json.loads(path.read_text())["source"]
        assert source.startswith(("measured", "datasheet, not measured", "assumed")), path.name


def test_cpu_has_this_machines_memory(cache: Path) -> None:
    assert profile.load("cpu")["total_bytes"] == profile.host_bytes()


def test_a_measured_profile_comes_before_a_shipped_one(cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / "h200.json").write_text(json.dumps(profile.load("h200") | {"launch_s": 1.0}))
    assert profile.load("h200")["launch_s"] == 1.0


def test_a_file_is_a_profile(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(profile.load("h200") | {"name": "mine"}))
    assert profile.load(str(file))["name"] == "mine"


@pytest.mark.parametrize("name", ["h2000", "no/such/file", "no.json", ""])
def test_an_unknown_name_is_refused_in_one_line(cache: Path, name: str) -> None:
    with pytest.raises(profile.ProfileError) as caught:
        profile.load(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "[]", "{", "\x00"])
def test_a_broken_file_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "broken.json"
    file.write_text(content)
    with pytest.raises(profile.ProfileError):
        profile.load(str(file))


@pytest.mark.parametrize(
    ("card", "gib", "name"),
    [
        ("NVIDIA H200", 140, "h200"),
        ("NVIDIA H100 80GB HBM3", 79, "h100"),
        ("NVIDIA A100-SXM4-80GB", 79, "a100-80"),
        ("NVIDIA A100-PCIE-40GB", 39, "a100-40"),
        ("NVIDIA GeForce RTX 4090", 24, "rtx4090"),
        ("NVIDIA GeForce RTX 3080 Ti", 12, "rtx3080ti"),
        ("Tesla V100-SXM2-32GB", 32, "v100"),
        ("Tesla T4", 15, "t4"),
        ("NVIDIA L40S", 44, "l40s"),
        ("Some New Card 3", 8, "some-new-card-3"),
    ],
)
def test_names_of_cards(card: str, gib: int, name: str) -> None:
    assert profile.name_of(card, gib << 30) == name


def test_a_written_profile_reads_back(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "er" / "cpu.json"
    found = json.loads((profile.SHIPPED / "cpu.json").read_text())
    profile.write(found, file)
    assert json.loads(file.read_text()) == found
    assert [path.name for path in file.parent.iterdir()] == ["cpu.json"]


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.Error, match="file"):
        profile.write({"name": "x"}, tmp_path / "file" / "x.json")


def test_measures_the_cpu(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    assert profile.main(["--device", "cpu", "--json", "--quiet"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert_complete(printed)
    assert printed["name"] == "cpu" and printed["context_bytes"] == 0
    assert json.loads((cache / "cpu.json").read_text()) == printed


def test_measuring_a_card_that_is_not_there_is_refused(cache: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a card")
    with pytest.raises(profile.ProfileError) as caught:
        profile.main(["--device", "h200"])
    assert caught.value.status == 3


def test_the_table_says_everything() -> None:
    lines = profile.table(profile.load("h200")).splitlines()
    assert lines[0] == "h200 (NVIDIA H200)"
    assert all(len(line) <= 100 for line in lines)
    assert any("139.80 GiB" in line for line in lines)
