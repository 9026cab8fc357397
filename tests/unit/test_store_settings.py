"""Which store the settings name, what they refuse, and that nobody loads a cloud's client who has a disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from genflow.errors import GenflowError
from genflow.settings import Settings
from genflow.storage.local import LocalStore
from genflow.storage.opening import open_store, place_of


def settings(**given: object) -> Settings:
    return Settings.model_validate({"instance": "here", **given})


def test_without_an_address_the_store_is_a_folder(tmp_path: Path) -> None:
    assert isinstance(open_store(settings(data=tmp_path)), LocalStore)
    by_its_other_name = settings(store=str(tmp_path / "a"), data=tmp_path / "b")
    assert (by_its_other_name.data, by_its_other_name.store) == (tmp_path / "a", None)
    assert place_of(by_its_other_name) == f"{tmp_path / 'a'} on here"


@pytest.mark.parametrize(
    ("url", "kind"),
    [("s3://pictures/a/b/", "S3Store"), ("gs://pictures", "GCSStore"), ("az://pictures/x", "AzureStore")],
)
def test_an_address_names_the_cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, kind: str) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    chosen = settings(store=url, data=tmp_path)
    assert type(vars(open_store(chosen))["_objects"]).__name__ == kind
    assert place_of(chosen) == url.rstrip("/")


@pytest.mark.parametrize(
    "given",
    [
        {"store": "s3://KEY:SECRET@pictures/a"},
        {"store": "az://pictures/a?sig=SECRET"},
        {"store": "ftp://pictures"},
        {"store": "s3://"},
        {"store": "s3://pictures", "store_endpoint": "https://KEY:SECRET@minio:9000"},
        {"store": "s3://pictures", "store_endpoint": "minio:9000"},
        {"redirect_s": 700_000},
    ],
)
def test_what_can_not_be_an_address_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        settings(**given)


def test_azure_without_an_account_is_said_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(GenflowError, match="AZURE_STORAGE_ACCOUNT_NAME"):
        open_store(settings(store="az://pictures", data=tmp_path))


def test_credentials_that_fit_nothing_are_said_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(tmp_path / "no-such-file.json"))
    with pytest.raises(GenflowError, match=r"gs://pictures.*no-such-file") as refusal:
        open_store(settings(store="gs://pictures", data=tmp_path))
    assert (refusal.value.code, refusal.value.status) == ("storage_unavailable", 503)


def test_the_client_of_the_clouds_is_loaded_only_for_them(tmp_path: Path) -> None:
    program = (
        "import sys; import genflow.cli, genflow.app; from genflow.settings import Settings;"
        "from genflow.storage.opening import open_store; open_store(Settings(data=sys.argv[1]));"
        "sys.exit('obstore' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
