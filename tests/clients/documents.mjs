// The unmodified JavaScript SDK against a gateway: every call an application makes.
//
//     node documents.mjs URL [down]
//
// With `down` every backend is expected to be away: a write must throw the gateway's own code.
// Exits 77 when the SDK is not installed.

import assert from "node:assert/strict";

let sdk;
try {
  sdk = await import("meilisearch");
} catch {
  console.log("skipped: the npm package meilisearch is not installed");
  process.exit(77);
}
const Client = sdk.Meilisearch ?? sdk.MeiliSearch;
const [url, mode] = process.argv.slice(2);
const client = new Client({ host: url, apiKey: "master" });

async function done(promise) {
  const task = await promise;
  const result = await client.tasks.waitForTask(task.taskUid, { timeout: 20000, interval: 10 });
  assert.equal(result.status, "succeeded", JSON.stringify(result));
  return result;
}

async function code(promise) {
  try {
    await promise;
  } catch (error) {
    return error.cause?.code ?? error.code;
  }
  return undefined;
}

async function checkSettings(index) {
  assert.deepEqual((await index.getSettings()).filterableAttributes, ["genre"]);
  await done(index.updateSettings({ stopWords: ["the"], filterableAttributes: ["n", "genre"] }));
  const changed = await index.getSettings();
  assert.deepEqual(changed.stopWords, ["the"]);
  assert.deepEqual(changed.filterableAttributes.toSorted(), ["genre", "n"]);
  await done(index.updateSynonyms({ book: ["tome"] }));
  assert.deepEqual(await index.getSynonyms(), { book: ["tome"] });
  await done(index.resetFilterableAttributes());
  assert.deepEqual(await index.getFilterableAttributes(), []);
  await done(index.resetSettings());
  assert.deepEqual((await index.getSettings()).stopWords, []);
  await done(index.updateSettings({ filterableAttributes: ["genre"], sortableAttributes: ["n"] }));
  const found = await index.search("book", { filter: "genre = odd", limit: 1 });
  assert.equal(found.estimatedTotalHits, 500);
}

async function main() {
  assert.equal(await client.isHealthy(), true);
  assert.ok((await client.getVersion()).pkgVersion);
  await done(client.createIndex("jsbooks", { primaryKey: "id" }));
  const index = client.index("jsbooks");
  await done(index.updateFilterableAttributes(["genre"]));
  await done(index.updateSortableAttributes(["n"]));
  assert.deepEqual(await index.getFilterableAttributes(), ["genre"]);
  const documents = Array.from({ length: 1000 }, (_, i) => ({
    id: i, n: i, title: `book ${i}`, genre: i % 2 === 0 ? "even" : "odd",
  }));
  for (let start = 0; start < 1000; start += 250) {
    const task = await done(index.addDocuments(documents.slice(start, start + 250)));
    assert.equal(task.details.indexedDocuments, 250);
  }
  assert.equal((await index.getDocuments({ limit: 2000 })).results.length, 1000);
  for (const document of documents.slice(0, 100)) {
    assert.deepEqual(await index.getDocument(document.id), document);
  }
  assert.equal((await index.getStats()).numberOfDocuments, 1000);

  await done(index.updateDocuments([{ id: 7, extra: true }]));
  assert.deepEqual(await index.getDocument(7), { ...documents[7], extra: true });
  await done(index.addDocumentsFromString('{"id":"n1"}\n{"id":"n2"}\n', "application/x-ndjson"));
  await done(index.addDocumentsFromString("id,title\nc1,csv\n", "text/csv"));
  assert.equal((await index.getDocument("c1")).title, "csv");
  await done(index.updateDocumentsFromString('{"id":"n1","extra":1}\n', "application/x-ndjson"));
  await done(index.updateDocumentsFromString("id,extra:number\nc1,2\n", "text/csv"));
  for (const task of index.updateDocumentsInBatches([{ id: 8, extra: 4 }, { id: 9 }], 1)) {
    await done(task);
  }
  for (const task of index.addDocumentsInBatches([{ id: "b1" }, { id: "b2" }], 1)) {
    await done(task);
  }
  const waited = await index.deleteDocuments(["b1", "b2"]).waitTask({ timeout: 20000 });
  assert.equal(waited.status, "succeeded");
  for (const [id, extra] of [["n1", 1], ["c1", 2], [8, 4]]) {
    assert.equal((await index.getDocument(id)).extra, extra);
  }
  assert.deepEqual(await index.getDocument(7, { fields: ["n"] }), { n: 7 });
  await checkSettings(index);
  assert.deepEqual((await client.getIndexes()).results.map((found) => found.uid), ["jsbooks"]);
  assert.equal((await client.getStats()).indexes.jsbooks.numberOfDocuments, 1003);
  assert.equal(await index.fetchPrimaryKey(), "id");
  const odd = await index.getDocuments({ filter: "genre = odd", limit: 2 });
  assert.equal(odd.total, 500);

  const found = await index.search("book", {
    filter: "genre = even", sort: ["n:desc"], limit: 3,
  });
  assert.deepEqual(found.hits.map((hit) => hit.n), [998, 996, 994]);
  assert.ok(!("_miroir_shard" in found.hits[0]) && !("_rankingScore" in found.hits[0]));
  assert.deepEqual((await index.search("nothing-like-it")).hits, []);
  const queries = [{ indexUid: "jsbooks", q: "book", limit: 2 }, { indexUid: "jsbooks", q: "csv" }];
  const { results } = await client.multiSearch({ queries });
  assert.deepEqual(results.map((found) => found.hits.length), [2, 1]);
  assert.equal(results[0].indexUid, "jsbooks");
  const swapped = code(client.swapIndexes([{ indexes: ["jsbooks", "other"] }]));
  assert.equal(await swapped, "miroir_not_supported");

  await done(index.deleteDocument(0));
  await done(index.deleteDocuments([1, "2"]));
  await done(index.deleteDocuments({ filter: "genre = odd" }));
  assert.equal((await index.getStats()).numberOfDocuments, 501);
  assert.equal(await code(index.getDocument(1)), "document_not_found");
  assert.equal(await code(index.addDocuments([{ title: "no id" }])), "miroir_primary_key_required");
  await done(index.deleteAllDocuments());
  assert.deepEqual((await index.getDocuments()).results, []);
  const tasks = await client.tasks.getTasks({ limit: 5 });
  assert.equal(tasks.results[0].type, "documentDeletion");
  const wanted = {
    types: ["indexCreation", "settingsUpdate"], statuses: ["succeeded"], indexUids: ["jsbooks"],
    afterEnqueuedAt: new Date(0), limit: 100,
  };
  const types = (await client.tasks.getTasks(wanted)).results.map((task) => task.type);
  assert.deepEqual([...new Set(types)].toSorted(), ["indexCreation", "settingsUpdate"]);
  const oldest = await client.tasks.getTasks({ ...wanted, reverse: true });
  assert.equal(oldest.results[0].type, "indexCreation");
  assert.equal(await code(client.tasks.getTasks({ types: ["nosuch"] })), "invalid_task_types");
  await done(client.deleteIndex("jsbooks"));
  console.log("javascript: ok");
}

if (mode === "down") {
  assert.equal(await code(client.index("jsbooks").addDocuments([{ id: 1 }])), "miroir_no_quorum");
  console.log("javascript: ok");
} else {
  await main();
}
