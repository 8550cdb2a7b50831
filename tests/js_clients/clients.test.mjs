// What the JavaScript clients see. The server's URL is in NATS_URL; with NATS_REPLICAS=3 streams have three copies.
// NATS_CA: over TLS, by this authority. NATS_SEED: as the user of this nkey.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { AckPolicy, DeliverPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { Kvm } from "@nats-io/kv";
import { Objm } from "@nats-io/obj";
import { Svcm } from "@nats-io/services";
import { connect, headers, nkeyAuthenticator, nuid } from "@nats-io/transport-node";

const replicas = Number(process.env.NATS_REPLICAS ?? "1");
const text = new TextDecoder();
let nc, js, jsm;

before(async () => {
  nc = await connect({
    servers: process.env.NATS_URL.split(","),
    timeout: 20_000,
    reconnectTimeWait: 100,
    ...(process.env.NATS_CA ? { tls: { caFile: process.env.NATS_CA } } : {}),
    ...(process.env.NATS_SEED
      ? { authenticator: nkeyAuthenticator(new TextEncoder().encode(process.env.NATS_SEED)) }
      : {}),
  });
  js = jetstream(nc, { timeout: 20_000 });
  jsm = await jetstreamManager(nc, { timeout: 20_000 });
});

after(async () => {
  await nc.close();
});

// A stream of its own with so many messages "0", "1", …
async function filled(count) {
  const name = nuid.next();
  await jsm.streams.add({ name, subjects: [`${name}.>`], num_replicas: replicas });
  for (let i = 0; i < count; i++) {
    const ack = await js.publish(`${name}.${i % 3}`, String(i));
    assert.equal(ack.seq, i + 1);
  }
  return name;
}

async function first(iterable, count) {
  const found = [];
  for await (const message of iterable) {
    found.push(message);
    if (found.length === count) break;
  }
  return found;
}

const said = (messages) => messages.map((message) => message.string());
const numbers = (from, to) => Array.from({ length: to - from }, (_, i) => String(from + i));

test("publish, subscribe, queue groups, headers", async () => {
  const subject = nuid.next();
  const plain = nc.subscribe(subject, { max: 2 });
  const members = [nc.subscribe(subject, { queue: "q" }), nc.subscribe(subject, { queue: "q" })];
  await nc.flush();
  const h = headers();
  h.append("A", "1");
  h.append("A", "2");
  nc.publish(subject, "one", { headers: h });
  nc.publish(subject, "two");
  const got = await first(plain, 2);
  assert.deepEqual(said(got), ["one", "two"]);
  assert.deepEqual(got[0].headers.values("A"), ["1", "2"]);
  await nc.flush();
  assert.equal(members[0].getReceived() + members[1].getReceived(), 2);
  members.forEach((member) => member.unsubscribe());
});

test("request, many answers, and nobody there", async () => {
  const subject = nuid.next();
  const subs = [1, 2, 3].map((i) => nc.subscribe(subject, { callback: (_, m) => m.respond(String(i)) }));
  await nc.flush();
  assert.ok(["1", "2", "3"].includes((await nc.request(subject, "?")).string()));
  const all = [];
  for await (const answer of await nc.requestMany(subject, "?", { strategy: "count", maxMessages: 3, maxWait: 10_000 })) {
    all.push(answer.string());
  }
  assert.deepEqual(all.sort(), ["1", "2", "3"]);
  subs.forEach((sub) => sub.unsubscribe());
  await assert.rejects(nc.request(nuid.next(), "?"), /no responders/i);
});

test("a stream: create, publish once, expected sequences, get, purge, list, update", async () => {
  const name = await filled(5);
  const id = { msgID: "one" };
  const stored = await js.publish(`${name}.x`, "x", id);
  const again = await js.publish(`${name}.x`, "x", id);
  assert.equal(stored.duplicate, false);
  assert.equal(again.duplicate, true);
  assert.equal(again.seq, stored.seq);
  await assert.rejects(js.publish(`${name}.x`, "y", { expect: { lastSequence: 1 } }), /wrong last sequence/);
  assert.equal((await jsm.streams.getMessage(name, { seq: 2 })).string(), "1");
  assert.equal((await jsm.streams.getMessage(name, { last_by_subj: `${name}.x` })).seq, 6);
  assert.equal((await jsm.streams.purge(name, { filter: `${name}.0` })).purged, 2);
  await jsm.streams.deleteMessage(name, 2);
  const info = await jsm.streams.info(name, { subjects_filter: ">", deleted_details: true });
  assert.equal(info.state.messages, 3);
  assert.deepEqual(info.state.subjects, { [`${name}.1`]: 1, [`${name}.2`]: 1, [`${name}.x`]: 1 });
  const names = [];
  for await (const found of jsm.streams.names(`${name}.x`)) names.push(found);
  assert.deepEqual(names, [name]);
  assert.equal((await jsm.streams.update(name, { max_msgs: 2 })).state.messages, 2);
  assert.equal(await jsm.streams.delete(name), true);
  await assert.rejects(jsm.streams.info(name), /stream not found/);
});

test("a pull consumer: fetch, next, consume, acknowledgements, redelivery", async () => {
  const name = await filled(20);
  // Of five that wait for their acknowledgement none is new before one is acknowledged.
  const config = { ack_policy: AckPolicy.Explicit, ack_wait: 60_000_000_000, max_ack_pending: 5 };
  await jsm.consumers.add(name, { durable_name: "c", ...config });
  const consumer = await js.consumers.get(name, "c");
  const batch = await first(await consumer.fetch({ max_messages: 5, expires: 10_000 }), 5);
  assert.deepEqual(said(batch), numbers(0, 5));
  batch[0].nak();
  const next = await consumer.next({ expires: 10_000 });
  assert.equal(next.string(), "0");
  assert.equal(next.info.deliveryCount, 2);
  assert.equal(await next.ackAck(), true);
  batch.slice(1).forEach((message) => message.ack());
  const rest = [];
  for await (const message of await consumer.consume({ max_messages: 10 })) {
    rest.push(message.string());
    assert.equal(await message.ackAck(), true);
    if (rest.length === 15) break;
  }
  assert.deepEqual(rest, numbers(5, 20));
  const info = await consumer.info();
  assert.equal(info.num_ack_pending, 0);
  assert.equal(info.ack_floor.stream_seq, 20);
  assert.equal(await consumer.next({ expires: 1000 }), null);
});

test("filters, start positions, last per subject", async () => {
  const name = await filled(9);
  const lasts = await jsm.consumers.add(name, {
    ack_policy: AckPolicy.None,
    deliver_policy: DeliverPolicy.LastPerSubject,
    filter_subjects: [`${name}.0`, `${name}.2`],
  });
  const consumer = await js.consumers.get(name, lasts.name);
  assert.deepEqual(said(await first(await consumer.fetch({ max_messages: 2, expires: 10_000 }), 2)), ["6", "8"]);
  const late = await jsm.consumers.add(name, {
    ack_policy: AckPolicy.None,
    deliver_policy: DeliverPolicy.StartSequence,
    opt_start_seq: 8,
  });
  const tail = await js.consumers.get(name, late.name);
  assert.deepEqual(said(await first(await tail.fetch({ max_messages: 2, expires: 10_000 }), 2)), ["7", "8"]);
});

test("a push consumer, and one with a group", async () => {
  const name = await filled(10);
  await jsm.consumers.add(name, {
    durable_name: "push",
    ack_policy: AckPolicy.Explicit,
    deliver_subject: nuid.next(),
    idle_heartbeat: 1_000_000_000,
    flow_control: true,
  });
  const push = await js.consumers.getPushConsumer(name, "push");
  const messages = await push.consume();
  const got = await first(messages, 10);
  got.forEach((message) => message.ack());
  assert.deepEqual(said(got), numbers(0, 10));
  await nc.flush();

  await jsm.consumers.add(name, {
    durable_name: "group",
    ack_policy: AckPolicy.Explicit,
    deliver_subject: nuid.next(),
    deliver_group: "g",
  });
  const grouped = await js.consumers.getPushConsumer(name, "group");
  assert.deepEqual(said(await first(await grouped.consume(), 10)), numbers(0, 10));
});

test("ordered consumers, by pull and by push", async () => {
  const name = await filled(30);
  const ordered = await js.consumers.get(name);
  assert.deepEqual(said(await first(await ordered.consume(), 30)), numbers(0, 30));
  const filtered = await js.consumers.get(name, { filter_subjects: `${name}.1`, opt_start_seq: 10 });
  assert.deepEqual(
    said(await first(await filtered.consume(), 7)),
    numbers(0, 30).filter((n) => Number(n) % 3 === 1 && Number(n) >= 9),
  );
  const pushed = await js.consumers.getPushConsumer(name);
  assert.deepEqual(said(await first(await pushed.consume(), 30)), numbers(0, 30));
});

test("key-value: put, get, create, update, history, delete, purge, keys, watch", async () => {
  const bucket = nuid.next();
  const kv = await new Kvm(js).create(bucket, { history: 5, replicas });
  const watcher = await kv.watch({ key: "a.*" });
  const seen = first(watcher, 4);
  const revision = await kv.create("a.x", "1");
  await assert.rejects(kv.create("a.x", "2"));
  await kv.update("a.x", "2", revision);
  await assert.rejects(kv.update("a.x", "3", revision), /wrong last sequence/);
  await kv.put("a.y", "9");
  await kv.put("b", "0");
  assert.equal((await kv.get("a.x")).string(), "2");
  const history = await first(await kv.history({ key: "a.x" }), 2);
  assert.deepEqual(said(history), ["1", "2"]);
  await kv.delete("a.x");
  assert.equal((await kv.get("a.x")).operation, "DEL");
  assert.deepEqual(
    (await seen).map((entry) => [entry.key, entry.operation, entry.string()]),
    [
      ["a.x", "PUT", "1"],
      ["a.x", "PUT", "2"],
      ["a.y", "PUT", "9"],
      ["a.x", "DEL", ""],
    ],
  );
  const keys = [];
  for await (const key of await kv.keys()) keys.push(key);
  assert.deepEqual(keys.sort(), ["a.y", "b"]);
  await kv.purge("b");
  assert.equal((await kv.get("b")).operation, "PURGE");
  assert.equal((await kv.status()).values > 0, true);
  assert.equal(await kv.destroy(), true);
});

test("object store: put, get, info, list, link, watch, delete, seal", async () => {
  const store = await new Objm(js).create(nuid.next(), { replicas });
  const data = new Uint8Array(700_000).map((_, i) => i % 251);
  const watcher = await store.watch();
  const seen = (async () => {
    for await (const info of watcher) if (info?.name === "big") return info;
  })();
  const info = await store.putBlob({ name: "big", options: { max_chunk_size: 64_000 } }, data);
  assert.equal(info.size, data.length);
  assert.equal(info.chunks, 11);
  assert.match(info.digest, /^SHA-256=/);
  assert.deepEqual(await store.getBlob("big"), data);
  assert.equal((await seen).digest, info.digest);
  await store.link("alias", info);
  assert.deepEqual(await store.getBlob("alias"), data);
  assert.deepEqual((await store.list()).map((found) => found.name).sort(), ["alias", "big"]);
  assert.equal((await store.delete("alias")).success, true);
  await store.seal();
  await assert.rejects(store.putBlob({ name: "late" }, data));
});

test("services: endpoints, and what they say of themselves", async () => {
  const svc = new Svcm(nc);
  const name = nuid.next();
  const service = await svc.add({ name, version: "1.2.3", description: "adds one" });
  service.addEndpoint("inc", { subject: name, handler: (_, m) => m.respond(String(Number(m.string()) + 1)) });
  await nc.flush();
  assert.equal((await nc.request(name, "41")).string(), "42");
  const client = svc.client();
  const [pong] = await first(await client.ping(name), 1);
  assert.equal(pong.version, "1.2.3");
  const [stats] = await first(await client.stats(name), 1);
  assert.equal(stats.endpoints[0].num_requests, 1);
  await service.stop();
});

test("an ordered consumer goes on when the leader is gone", { skip: replicas < 3 && "needs three servers" }, async () => {
  const name = await filled(50);
  const consumer = await js.consumers.get(name);
  const messages = await consumer.consume({ max_messages: 10, idle_heartbeat: 1000 });
  const got = [];
  let asked = false;
  const reading = (async () => {
    for await (const message of messages) {
      got.push(message.string());
      if (got.length === 20 && !asked) {
        asked = true;
        const info = await jsm.streams.info(name);
        console.log(`KILL ${info.cluster.leader}`); // The test that runs this does it, and answers on standard input.
        await new Promise((resolve) => process.stdin.once("data", resolve));
        process.stdin.pause();
        for (let i = 50; i < 80; i++) {
          for (;;) {
            try {
              await js.publish(`${name}.0`, String(i), { msgID: String(i) });
              break;
            } catch (error) {
              console.log(`# ${error.message}`);
            }
          }
        }
      }
      if (got.length === 80) return;
    }
  })();
  await reading;
  assert.deepEqual(got, numbers(0, 80));
});
