def test_the_catalogue_tells_what_a_widget_needs(person):
    models = {model["id"]: model for model in person.get("api/models")["models"]}
    turbo = models["shapes-dit-turbo"]
    assert turbo["enabled"]
    assert turbo["defaults"] == {"steps": 4, "guidance": 1.0, "width": 128, "height": 128}
    assert turbo["limits"]["max_steps"] >= 4
    assert turbo["state"] in {"absent", "loading", "ready", "leaving"}
    assert turbo["bytes"] > 10_000_000


def test_a_model_is_loaded_and_evicted_by_the_instructor(person):
    assert person.http.post("api/models/shapes/load").status_code == 202
    person.until(lambda event: person.slots().get("shapes") == "ready")
    weights = weights_of(person, "shapes")
    assert sum(part["size_bytes"] for part in weights) > 10_000_000
    assert all(part["workers"] == 1 for part in weights)
    assert person.http.post("api/models/shapes/evict").status_code == 202
    person.until(lambda event: "shapes" not in person.slots())
    assert weights_of(person, "shapes") == weights
    status, error = person.refused("POST", "api/models/shapes/evict")
    assert (status, error["kind"]) == (409, "model_not_loaded")


def weights_of(person, model):
    """The model's parts in the pool; LoRAs that others have drawn with may be there too."""
    parts = pool_of(person)["parts"]
    return [part for part in parts if model in part["models"] and not part["lora"]]


def pool_of(person):
    """The weight pool, which must be as it should."""
    pool = person.get("api/status")["pool"]
    assert 0 < pool["used_bytes"] <= pool["budget_bytes"]
    assert pool["problem"] == ""
    return pool


def test_a_kernel_may_neither_load_nor_evict(kernel):
    with kernel.person() as participant:
        for verb in ("load", "evict"):
            status, error = participant.refused("POST", f"api/models/shapes/{verb}")
            assert (status, error["kind"]) == (403, "not_allowed")


def test_a_model_that_is_not_in_the_catalogue_is_unknown(person):
    for verb in ("load", "evict"):
        status, error = person.refused("POST", f"api/models/no%20body/{verb}")
        assert (status, error["kind"], error["model"]) == (404, "model_unknown", "no body")


def test_one_is_known_by_a_name_of_ones_own(person):
    assert person.http.put("api/me", json={"name": "Ann"}).json()["name"] == "Ann"
    assert person.get("api/me")["name"] == "Ann"
    for name in ("", "  ", "x" * 100, "a\nb", "\x00"):
        assert person.refused("PUT", "api/me", json={"name": name})[1]["kind"] == "invalid_request"
    assert person.get("api/status")["me"]["name"] == "Ann"
