// A picture through a workflow with nothing but Node's own fetch: upload, submit, poll, download.
//   node node_fetch.mjs photo.png workflow_api.json result.png
// GENFLOW_URL says where genflow is, GENFLOW_API_KEY who asks (where keys are set).
import { readFile, writeFile } from "node:fs/promises";
import { basename } from "node:path";

const [photoPath, workflowPath, resultPath] = process.argv.slice(2);
const base = process.env.GENFLOW_URL ?? "http://127.0.0.1:8190";
const key = process.env.GENFLOW_API_KEY;
const auth = key ? { Authorization: `Bearer ${key}` } : {};

async function call(method, path, { headers = {}, ...options } = {}) {
  const answer = await fetch(base + path, { method, headers: { ...auth, ...headers }, ...options });
  if (answer.ok) return answer;
  const { error } = await answer.json();
  throw new Error(`${answer.status} ${error.code}: ${error.message}`);
}

const form = new FormData();
form.set("content_type", "image/png");
form.set("file_path", basename(photoPath));
form.set("file", new Blob([await readFile(photoPath)]), basename(photoPath));
const asset = await (await call("POST", "/api/v2/assets", { body: form })).json();

// Wherever the workflow loads a picture, it loads ours.
const workflow = JSON.parse(await readFile(workflowPath, "utf8"));
for (const node of Object.values(workflow)) {
  if (node.class_type === "LoadImage") node.inputs.image = { __type: "core/ASSET", info: { id: asset.id } };
}

let job = await (
  await call("POST", "/api/v2/jobs", {
    headers: { "Content-Type": "application/json", "Idempotency-Key": crypto.randomUUID() },
    body: JSON.stringify({ workflow }),
  })
).json();
while (["queued", "running", "canceling"].includes(job.status)) {
  await new Promise((resolve) => setTimeout(resolve, 500));
  job = await (await call("GET", `/api/v2/jobs/${job.id}`)).json();
}
if (job.status !== "succeeded") throw new Error(`${job.status}: ${job.error?.message ?? ""}`);

const picture = await call("GET", `/api/v2/assets/${job.outputs[0].id}/content`);
await writeFile(resultPath, Buffer.from(await picture.arrayBuffer()));
console.log(`${job.id} ${job.status} ${resultPath}`);
