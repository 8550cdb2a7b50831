// A client that publishes and pulls, and connects anew whenever its credential in the file CREDENTIAL_FILE has changed. When its standard
// input ends it says what it published and saw, and every status that was no end of its own.
import { readFileSync } from "node:fs";
import { connect, nkeyAuthenticator } from "@nats-io/transport-node";
import { jetstream } from "@nats-io/jetstream";

const { CREDENTIAL_FILE, SUBJECT, STREAM, CONSUMER } = process.env;
const published = [], seen = [], troubles = [];
let text = "", connection, js, ends = false;
process.stdin.on("end", () => (ends = true)).resume();

async function follow() {
  const found = readFileSync(CREDENTIAL_FILE, "utf8");
  if (found === text) return;
  text = found;
  const secret = JSON.parse(text);
  const login = secret.seed
    ? { authenticator: nkeyAuthenticator(new TextEncoder().encode(secret.seed)) }
    : { user: secret.user, pass: secret.password };
  const former = connection;
  connection = await connect({ servers: secret.servers, name: SUBJECT, timeout: 20_000, ...login });
  js = jetstream(connection, { timeout: 10_000 });
  watch(connection);
  if (former) {
    former.isOurs = true;
    await former.close();
  }
}

async function watch(watched) {
  for await (const status of watched.status()) {
    if (!watched.isOurs && status.type !== "update") troubles.push(`${status.type} ${status.error ?? ""}`);
  }
}

for (let number = 1; !ends; number += 1) {
  await follow();
  const ack = await js.publish(SUBJECT, String(number));
  if (ack.duplicate) troubles.push(`duplicate ${number}`);
  published.push(number);
  const consumer = await js.consumers.get(STREAM, CONSUMER);
  for await (const message of await consumer.fetch({ max_messages: 1, expires: 2_000 })) {
    seen.push(Number(message.string()));
    if (!(await message.ackAck())) troubles.push("an acknowledgement was not answered");
  }
  await new Promise((resolve) => setTimeout(resolve, 50));
}
console.log(JSON.stringify({ published, seen, troubles }));
connection.isOurs = true;
await connection.close();
