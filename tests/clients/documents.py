"""The unmodified Python SDK against a gateway: every call an application makes.

    python3 documents.py URL [down]

With `down` every backend is expected to be away: a write must raise the gateway's own code.
Exits 77 when the SDK is not installed.
"""

import sys

try:
    import meilisearch
    from meilisearch.errors import MeilisearchApiError
except ImportError:
    print("skipped: the Python package meilisearch is not installed")
    sys.exit(77)


def wait(client, task):
    done = client.wait_for_task(task.task_uid, timeout_in_ms=20000, interval_in_ms=10)
    assert done.status == "succeeded", done
    return done


def all_documents(index):
    return index.get_documents({"limit": 2000}).results


def check_settings(client, index):
    before = index.get_settings()
    assert before["filterableAttributes"] == ["genre"], before
    wait(client, index.update_settings({"stopWords": ["the"], "filterableAttributes": ["n", "genre"]}))
    changed = index.get_settings()
    assert changed["stopWords"] == ["the"], changed
    assert sorted(changed["filterableAttributes"]) == ["genre", "n"], changed
    wait(client, index.update_synonyms({"book": ["tome"]}))
    assert index.get_synonyms() == {"book": ["tome"]}
    wait(client, index.reset_synonyms())
    wait(client, index.reset_filterable_attributes())
    assert index.get_filterable_attributes() == []
    wait(client, index.reset_settings())
    assert index.get_settings()["stopWords"] == []
    wait(client, index.update_settings({"filterableAttributes": ["genre"], "sortableAttributes": ["n"]}))
    found = index.search("book", {"filter": "genre = odd", "limit": 1})
    assert found["estimatedTotalHits"] == 500, found


def main(url):
    client = meilisearch.Client(url, "master")
    assert client.is_healthy()
    assert client.get_version()["pkgVersion"]
    wait(client, client.create_index("pybooks", {"primaryKey": "id"}))
    index = client.index("pybooks")
    wait(client, index.update_filterable_attributes(["genre"]))
    wait(client, index.update_sortable_attributes(["n"]))
    assert index.get_filterable_attributes() == ["genre"]
    documents = [
        {"id": i, "n": i, "title": f"book {i}", "genre": "even" if i % 2 == 0 else "odd"}
        for i in range(1000)
    ]
    for start in range(0, 1000, 250):
        done = wait(client, index.add_documents(documents[start : start + 250]))
        assert done.details["indexedDocuments"] == 250, done.details
    found = {d.id: dict(d) for d in all_documents(index)}
    assert len(found) == 1000
    for document in documents[:100]:
        assert dict(index.get_document(document["id"]))["title"] == document["title"]
    assert index.get_stats().number_of_documents == 1000

    wait(client, index.update_documents([{"id": 7, "extra": True}]))
    assert dict(index.get_document(7))["title"] == "book 7"
    assert index.get_document(7).extra is True
    wait(client, index.add_documents_ndjson(b'{"id":"n1","title":"ndjson"}\n{"id":"n2"}\n'))
    wait(client, index.add_documents_csv(b"id,title\nc1,csv\n"))
    assert index.get_document("c1").title == "csv"
    updates = [
        index.update_documents_ndjson(b'{"id":"n1","extra":1}\n'),
        index.update_documents_csv(b"id,extra:number\nc1,2\n"),
        index.update_documents_json(b'[{"id":"n2","extra":3}]'),
    ]
    updates += index.update_documents_in_batches([{"id": 8, "extra": 4}, {"id": 9}], batch_size=1)
    for task in updates:
        assert wait(client, task).type == "documentAdditionOrUpdate"
    extras = [index.get_document(name).extra for name in ["n1", "c1", "n2", 8]]
    assert extras == [1, 2, 3, 4], extras
    assert index.get_document("n1").title == "ndjson"
    for task in index.add_documents_in_batches([{"id": "b1"}, {"id": "b2"}], batch_size=1):
        wait(client, task)
    even = index.get_documents({"filter": "genre = even", "limit": 2, "offset": 1, "fields": ["n"]})
    assert (even.total, len(even.results)) == (500, 2), even
    assert dict(index.get_document("b1", {"fields": ["id"]})) == {"id": "b1"}
    wait(client, index.delete_documents(["b1", "b2"]))
    check_settings(client, index)
    assert [found.uid for found in client.get_indexes()["results"]] == ["pybooks"]
    assert client.get_all_stats()["indexes"]["pybooks"]["numberOfDocuments"] == 1003
    assert index.fetch_info().primary_key == "id"
    assert client.get_task(updates[0].task_uid).status == "succeeded"

    hits = index.search("book", {"filter": "genre = even", "sort": ["n:desc"], "limit": 3})["hits"]
    assert [hit["n"] for hit in hits] == [998, 996, 994], hits
    assert "_miroir_shard" not in hits[0] and "_rankingScore" not in hits[0]
    assert index.search("nothing-like-it")["hits"] == []
    queries = [{"indexUid": "pybooks", "q": "book", "limit": 2}, {"indexUid": "pybooks", "q": "csv"}]
    results = client.multi_search(queries)["results"]
    assert [len(found["hits"]) for found in results] == [2, 1], results
    assert results[0]["indexUid"] == "pybooks"
    try:
        client.swap_indexes([{"indexes": ["pybooks", "other"]}])
        raise AssertionError("indexes were swapped")
    except MeilisearchApiError as error:
        assert error.code == "miroir_not_supported" and "alias" in error.message, error

    wait(client, index.delete_document(0))
    wait(client, index.delete_documents(["1", "2"]))
    wait(client, index.delete_documents(filter="genre = odd"))
    left = index.get_stats().number_of_documents
    # 0 and 2 of the even ones are gone, n1, n2 and c1 have no genre.
    assert left == 498 + 3, left
    try:
        index.get_document(1)
        raise AssertionError("a deleted document was found")
    except MeilisearchApiError as error:
        assert error.code == "document_not_found", error
    try:
        index.add_documents([{"title": "no id"}])
        raise AssertionError("a document without a key was taken")
    except MeilisearchApiError as error:
        assert error.code == "miroir_primary_key_required", error
    wait(client, index.delete_all_documents())
    assert all_documents(index) == []
    assert client.get_tasks({"limit": 5}).results[0].type == "documentDeletion"
    wanted = {"types": ["indexCreation", "settingsUpdate"], "indexUids": ["pybooks"], "limit": 100}
    types = {task.type for task in client.get_tasks(wanted).results}
    assert types == {"indexCreation", "settingsUpdate"}, types
    try:
        client.get_tasks({"types": ["nosuch"]})
        raise AssertionError("an unknown type of task was listed")
    except MeilisearchApiError as error:
        assert error.code == "invalid_task_types", error
    wait(client, client.delete_index("pybooks"))
    print("python: ok")


def down(url):
    client = meilisearch.Client(url, "master")
    try:
        client.index("pybooks").add_documents([{"id": 1}])
        raise AssertionError("a write without backends was taken")
    except MeilisearchApiError as error:
        assert error.code == "miroir_no_quorum", error
    print("python: ok")


if __name__ == "__main__":
    (down if sys.argv[2:] == ["down"] else main)(sys.argv[1])
