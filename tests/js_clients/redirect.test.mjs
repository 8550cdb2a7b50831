// Clients of blue that are sent to green: an idle subscriber, a publisher at a rate, a consumer that waits, an ordered consumer.
// BLUE and GREEN are host:port. READY asks whoever runs this for the order.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { AckPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";

const ARRIVES_MS = 2500;
const { BLUE, GREEN } = process.env;

// A client with default options, and what happened to it.
async function watched(name) {
  const nc = await connect({ servers: BLUE, name });
  const found = { name, nc, gaps: [], errors: [] };
  found.arrived = new Promise((resolve) => {
    (async () => {
      let left = 0;
      for await (const status of nc.status()) {
        if (status.type === "disconnect") left = Date.now();
        if (status.type === "error") found.errors.push(status.error);
        if (status.type === "reconnect") {
          found.gaps.push(Date.now() - left);
          if (nc.getServer() === GREEN) resolve();
        }
      }
    })();
  });
  return found;
}

for (const servers of [BLUE, GREEN]) {
  const nc = await connect({ servers });
  const jsm = await jetstreamManager(nc);
  await jsm.streams.add({ name: "ORDERS", subjects: ["orders"] });
  await jsm.consumers.add("ORDERS", { durable_name: "worker", ack_policy: AckPolicy.Explicit });
  await nc.close();
}

test("clients of every kind arrive on green", async () => {
  const names = ["idle", "publisher", "worker", "ordered"];
  const [idle, publisher, worker, ordered] = await Promise.all(names.map(watched));
  const heard = idle.nc.subscribe("core", { max: 1 });
  let isOver = false;
  const published = { before: 0, after: 0 };
  const publishing = (async () => {
    const js = jetstream(publisher.nc, { timeout: 1000 });
    for (let number = 0; !isOver; ) {
      try {
        await js.publish("orders", String(number), { msgID: String(number) });
        published[publisher.nc.getServer() === GREEN ? "after" : "before"]++;
        number++;
      } catch {
        // It is published again under its id.
      }
      await sleep(5);
    }
  })();
  const consumed = { before: 0, after: 0 };
  const waiting = await (await jetstream(worker.nc).consumers.get("ORDERS", "worker")).consume();
  const consuming = (async () => {
    for await (const message of waiting) {
      message.ack();
      consumed[worker.nc.getServer() === GREEN ? "after" : "before"]++;
    }
  })();
  const inOrder = await (await jetstream(ordered.nc).consumers.get("ORDERS")).consume();
  const reading = (async () => {
    for await (const _ of inOrder);
  })();
  while (published.before < 100 || consumed.before < 100) await sleep(10);
  console.log("READY");
  const all = [idle, publisher, worker, ordered];
  await Promise.all(all.map((one) => one.arrived));
  while (published.after < 50 || consumed.after < 50) await sleep(10);
  publisher.nc.publish("core", "here");
  for await (const message of heard) assert.equal(message.string(), "here");
  isOver = true;
  await publishing;
  waiting.stop();
  inOrder.stop();
  await Promise.all([consuming, reading]);
  for (const one of all) {
    console.log(`GAPS ${one.name} ${one.gaps.join(" ")}`);
    assert.ok(Math.max(...one.gaps) < ARRIVES_MS, `${one.name}: ${one.gaps}`);
    assert.equal(one.nc.isClosed(), false);
    await one.nc.close();
  }
});
