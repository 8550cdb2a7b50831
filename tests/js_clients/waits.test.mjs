// A plain publisher whose stream waits without a leader is told so, and stays connected. The server's URL is in NATS_URL.
import assert from "node:assert/strict";
import { test } from "node:test";
import { connect } from "@nats-io/transport-node";

test("a plain publisher stays when its message was not stored", async () => {
  const nc = await connect({ servers: process.env.NATS_URL, timeout: 20_000 });
  const told = (async () => {
    for await (const status of nc.status()) {
      assert.equal(status.type, "error");
      return status.error;
    }
  })();
  nc.publish("s", "plain");
  const error = await told;
  assert.match(error.message, /^Permissions Violation for Publish to "S": message not stored/);
  const heard = nc.subscribe("here", { max: 1 });
  nc.publish("here", "x");
  for await (const message of heard) assert.equal(message.string(), "x");
  await nc.flush();
  assert.equal(nc.isClosed(), false);
  await nc.close();
});
